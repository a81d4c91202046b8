// Brings out what the outbox holds, in order per stream, until SIGTERM or SIGINT.
const { Client } = require("pg");

// pg gives a bigint as text, since a JavaScript number cannot hold all of them: claim_id goes back as it came.
const CLAIM = "SELECT * FROM postroom.claim_outbox($1, max_messages => 20, holding => '{}')";
const COMPLETE = "SELECT outcome AS answer FROM postroom.complete_outbox($1, ARRAY[$2]::uuid[])";
const FAIL = "SELECT outcome AS answer FROM postroom.fail_outbox($1, $2)";
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
let ending = false;
for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => (ending = true));

// Yours: publish, mail, call a service. Must take less than postroom.instance_lease.
async function deliver(client, { payload }) {
  const insert = "INSERT INTO delivery (account_id, number, worker) VALUES ($1, $2, 'node')";
  await client.query(insert, [payload.account, payload.number]);
}

const ask = async (client, sql, ...values) => (await client.query(sql, values)).rows[0].answer;
const alive = async (client, instance) =>
  (await ask(client, "SELECT postroom.heartbeat_instance($1) AS answer", instance)) === "alive";

// One claim, worked off. Whatever is left of it when this returns is given again by the next one.
async function work(client, instance) {
  const messages = (await client.query(CLAIM, [instance])).rows;
  const failed = new Set();
  let heard = performance.now();
  for (const message of messages) {
    const { claim_id, message_id } = message;
    const stream = message.stream_id ?? message_id;
    if (message_id === null || failed.has(stream)) continue; // says "come back" only; or left with the failed one before it
    if (performance.now() - heard > 1000) {
      heard = performance.now();
      if (!(await alive(client, instance))) return; // presumed gone: these messages are someone else's now
    }
    if (ending) return;
    let outcome;
    try {
      await deliver(client, message);
      outcome = await ask(client, COMPLETE, claim_id, message_id);
    } catch (error) {
      failed.add(stream);
      const failures = JSON.stringify([{ message_id, error: String(error), failure_reason: 2 }]);
      outcome = await ask(client, FAIL, claim_id, failures);
    }
    if (outcome === "stale") return;
  }
  if (messages.length === 0) await pause(250);
}

async function main() {
  let instance = null;
  while (!ending) {
    const client = new Client({ connectionString: process.env.DATABASE_URL });
    client.on("error", () => {}); // a connection lost while nobody asks; the next question fails
    try {
      await client.connect();
      while (!ending) {
        if (instance === null || !(await alive(client, instance)))
          instance = await ask(client, "SELECT postroom.register_instance('node') AS answer");
        await work(client, instance);
      }
      if (instance) await client.query("SELECT postroom.deregister_instance($1)", [instance]); // what it holds goes back free of charge
    } catch (error) {
      console.error(String(error)); // a lost connection, or evicted between heartbeat and claim
      await pause(1000);
    }
    await client.end().catch(() => {});
  }
}

main();
