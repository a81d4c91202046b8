// Changes accounts and tells of each change: usage: producer.js CHANGES ACCOUNT...
// The change and its message commit together, or neither does. The connection comes from PGHOST,
// PGUSER and PGDATABASE or from DATABASE_URL.
const { Client } = require("pg");

const CHANGE = "UPDATE account SET changes = changes + 1 WHERE account_id = $1 RETURNING changes";
const STREAM = "SELECT postroom.stream_id_of($1) AS stream_id";
const STORE = "SELECT outcome FROM postroom.store_outbox_messages($1)";

async function change(client, account) {
  await client.query("BEGIN");
  try {
    // The row lock makes the number, and holds the next change back until this one's message is there.
    const number = (await client.query(CHANGE, [account])).rows[0].changes;
    const { stream_id } = (await client.query(STREAM, [account])).rows[0];
    const message = { message_type: "account.changed", payload: { account, number }, stream_id, destination: "accounts" };
    // As text: pg makes a Postgres array, not JSON, of an array.
    await client.query(STORE, [JSON.stringify([message])]);
    await client.query("COMMIT");
  } catch (error) {
    await client.query("ROLLBACK");
    throw error;
  }
}

async function main() {
  const [changes, ...accounts] = process.argv.slice(2);
  const client = new Client({ connectionString: process.env.DATABASE_URL });
  await client.connect();
  for (let i = 0; i < Number(changes); i++) for (const account of accounts) await change(client, account);
  await client.end();
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
