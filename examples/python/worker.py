"""Brings out what the outbox holds, in order per stream, until SIGTERM or SIGINT."""
import os
import signal
import sys
import time

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

CLAIM = "SELECT * FROM postroom.claim_outbox(%s, max_messages => 20, holding => '{}')"
COMPLETE = "SELECT outcome FROM postroom.complete_outbox(%s, ARRAY[%s]::uuid[])"
FAIL = "SELECT outcome FROM postroom.fail_outbox(%s, %s)"
ending = []  # what asked for the end
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *why: ending.append(why))


def deliver(connection, message):
    """Yours: publish, mail, call a service. Must take less than postroom.instance_lease."""
    said = message["payload"]
    insert = "INSERT INTO delivery (account_id, number, worker) VALUES (%s, %s, 'python')"
    connection.execute(insert, [said["account"], said["number"]])


def ask(connection, sql, *arguments):
    return next(iter(connection.execute(sql, arguments).fetchone().values()))


def alive(connection, instance):
    return ask(connection, "SELECT postroom.heartbeat_instance(%s)", instance) == "alive"


def work(connection, instance):
    """One claim, worked off. Whatever is left of it when this returns is given again by the next one."""
    messages = connection.execute(CLAIM, [instance]).fetchall()
    failed, heard = set(), time.monotonic()
    for message in messages:
        claim, message_id = message["claim_id"], message["message_id"]
        stream = message["stream_id"] or message_id
        if message_id is None or stream in failed:
            continue  # says "come back" only; or left the claim with the failed one before it
        if time.monotonic() - heard > 1:
            heard = time.monotonic()
            if not alive(connection, instance):
                return  # presumed gone: these messages are someone else's now
        if ending:
            return
        try:
            deliver(connection, message)
            outcome = ask(connection, COMPLETE, claim, message_id)
        except Exception as error:
            failed.add(stream)
            failure = {"message_id": str(message_id), "error": str(error), "failure_reason": 2}
            outcome = ask(connection, FAIL, claim, Jsonb([failure]))
        if outcome == "stale":
            return
    if not messages:
        time.sleep(0.25)


instance = None
while not ending:
    try:
        with psycopg.connect(os.environ.get("DATABASE_URL", ""), autocommit=True, row_factory=dict_row) as connection:
            while not ending:
                if instance is None or not alive(connection, instance):
                    instance = ask(connection, "SELECT postroom.register_instance('python')")
                work(connection, instance)
            if instance:  # what it still holds goes back free of charge
                connection.execute("SELECT postroom.deregister_instance(%s)", [instance])
    except psycopg.Error as error:  # a lost connection, or evicted between heartbeat and claim
        print(error, file=sys.stderr)
        time.sleep(1)
