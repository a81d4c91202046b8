-- What the examples act on: accounts that change, and the outside world that is told of each change.
CREATE TABLE account (
    account_id text PRIMARY KEY,
    changes integer NOT NULL DEFAULT 0
);

CREATE TABLE delivery (
    delivery_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account_id text NOT NULL,
    number integer NOT NULL,
    worker text NOT NULL
);
