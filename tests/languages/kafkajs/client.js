// A consumer and a producer of KafkaJS, as a user writes them. They take the options of Kafka's VerifiableConsumer and
// VerifiableProducer and tell what happens in the same lines of JSON.
"use strict";

const { parseArgs } = require("node:util");
const { setTimeout: pause } = require("node:timers/promises");
const { Kafka, logLevel } = require("kafkajs");

const text = (value) => ({ type: "string", default: value });
const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    "bootstrap-server": text(),
    topic: text(),
    "client-id": text("kafkajs"),
    "group-id": text(),
    "session-timeout": text("45000"),
    "max-messages": text("-1"),
    throughput: text("-1"),
    "repeating-keys": text("1"),
    "value-prefix": text(""),
  },
});
const topic = options.topic;

function tell(name, more = {}) {
  console.log(JSON.stringify({ name, ...more }));
}

async function consume(kafka) {
  const sessionTimeout = Number(options["session-timeout"]);
  const heartbeatInterval = sessionTimeout / 10;
  const consumer = kafka.consumer({
    groupId: options["group-id"],
    sessionTimeout,
    heartbeatInterval,
    // KafkaJS heartbeats between fetches, and looks for a coordinator that moved only after its retries: with its
    // defaults, the first comes after 5 s and the second after a minute.
    maxWaitTimeInMs: heartbeatInterval,
    retry: { initialRetryTime: 100, retries: 2 },
  });
  let owned = [];
  const give = (name) => {
    if (owned.length) tell(name, { partitions: owned });
    owned = [];
  };
  consumer.on(consumer.events.REBALANCING, () => give("partitions_revoked"));
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    // A member that was fenced joins without REBALANCING.
    give("partitions_lost");
    owned = (payload.memberAssignment[topic] ?? []).map((partition) => ({ topic, partition }));
    tell("partitions_assigned", { partitions: owned });
  });
  consumer.on(consumer.events.CRASH, ({ payload }) => {
    tell("crash", { error: String(payload.error), restarts: payload.restart });
  });
  process.once("SIGTERM", async () => {
    await consumer.disconnect(); // leaves the group
    give("partitions_revoked");
    tell("shutdown_complete");
    process.exit(0);
  });
  await consumer.connect();
  tell("startup_complete");
  await consumer.subscribe({ topic, fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch, heartbeat }) => {
      for (const { offset, value } of batch.messages) {
        tell("record_data", { topic, partition: batch.partition, offset: Number(offset), value: String(value) });
      }
      const offset = String(Number(batch.lastOffset()) + 1);
      await commit(consumer, { topic, partition: batch.partition, offset });
      await heartbeat();
    },
  });
}

async function commit(consumer, { topic, partition, offset }) {
  const offsets = [{ topic, partition, offset: Number(offset) }];
  try {
    await consumer.commitOffsets([{ topic, partition, offset }]);
    tell("offsets_committed", { offsets, success: true });
  } catch (error) {
    tell("offsets_committed", { offsets, success: false, error: String(error) });
    throw error; // KafkaJS joins again, or asks for the coordinator
  }
}

async function produce(kafka) {
  const producer = kafka.producer();
  const numMessages = Number(options["max-messages"]);
  const throughput = Number(options.throughput);
  let stopped = false;
  process.once("SIGTERM", () => (stopped = true));
  await producer.connect();
  tell("startup_complete");
  for (let number = 0; (numMessages < 0 || number < numMessages) && !stopped; ) {
    // One request for each message if there is a rate, or else for a hundred.
    const more = number + (throughput > 0 ? 1 : 100);
    const end = numMessages < 0 ? more : Math.min(more, numMessages);
    const messages = [];
    for (; number < end; number++) {
      const prefix = options["value-prefix"];
      const value = prefix ? `${prefix}.${number}` : String(number);
      messages.push({ key: String(number % Number(options["repeating-keys"])), value });
    }
    try {
      await producer.send({ topic, messages });
      for (const { value } of messages) tell("producer_send_success", { topic, value });
    } catch (error) {
      for (const { value } of messages) tell("producer_send_error", { value, message: String(error) });
    }
    if (throughput > 0) await pause(1000 / throughput);
  }
  await producer.disconnect();
  tell("shutdown_complete");
}

const commands = { consume, produce };
const command = commands[positionals[0]];
if (!command) {
  console.error("say consume or produce");
  process.exit(1);
}
const kafka = new Kafka({
  clientId: options["client-id"],
  brokers: options["bootstrap-server"].split(","),
  logLevel: logLevel.WARN,
  logCreator: () => (entry) => console.error(entry.namespace, JSON.stringify(entry.log)),
});
command(kafka).catch((error) => {
  console.error(error);
  process.exit(1);
});
