"""Changes accounts and tells of each change: usage: producer.py CHANGES ACCOUNT...

The change and its message commit together, or neither does. The connection comes from PGHOST,
PGUSER and PGDATABASE or from DATABASE_URL.
"""
import os
import sys

import psycopg
from psycopg.types.json import Jsonb

CHANGE = "UPDATE account SET changes = changes + 1 WHERE account_id = %s RETURNING changes"
SEND = "SELECT postroom.send('account.changed', %s, postroom.stream_id_of(%s), 'accounts')"


def change(connection, account):
    with connection.transaction():
        # The row lock makes the number, and holds the next change back until this one's message is there.
        (number,) = connection.execute(CHANGE, [account]).fetchone()
        connection.execute(SEND, [Jsonb({"account": account, "number": number}), account])


with psycopg.connect(os.environ.get("DATABASE_URL", ""), autocommit=True) as connection:
    for _ in range(int(sys.argv[1])):
        for account in sys.argv[2:]:
            change(connection, account)
