// A consumer, a producer and an exactly-once loop of KafkaJS, as a user writes them. They take the options of Kafka's
// VerifiableConsumer, VerifiableProducer and TransactionalMessageCopier, and the first two tell what happens in the
// same lines of JSON.
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
    "input-topic": text(),
    "output-topic": text(),
    "transactional-id": text(),
    "transaction-size": text("200"),
    "enable-random-aborts": { type: "boolean", default: false },
  },
});
const topic = options.topic;

function tell(name, more = {}) {
  console.log(JSON.stringify({ name, ...more }));
}

function newConsumer(kafka, more = {}) {
  const sessionTimeout = Number(options["session-timeout"]);
  const heartbeatInterval = sessionTimeout / 10;
  return kafka.consumer({
    groupId: options["group-id"],
    sessionTimeout,
    heartbeatInterval,
    // KafkaJS heartbeats between fetches, and looks for a coordinator that died only after its retries: with its
    // defaults up to 5 s and about 50 s.
    maxWaitTimeInMs: heartbeatInterval,
    retry: { initialRetryTime: 100, retries: 2 },
    ...more,
  });
}

async function consume(kafka) {
  const consumer = newConsumer(kafka);
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
    eachBatch: async ({ batch, heartbeat, commitOffsetsIfNecessary }) => {
      for (const { offset, value } of batch.messages) {
        tell("record_data", { topic, partition: batch.partition, offset: Number(offset), value: String(value) });
      }
      const offset = String(Number(batch.lastOffset()) + 1);
      await commit(commitOffsetsIfNecessary, { topic, partition: batch.partition, offset });
      await heartbeat();
    },
  });
}

async function commit(commitOffsets, { topic, partition, offset }) {
  const offsets = [{ topic, partition, offset: Number(offset) }];
  try {
    await commitOffsets({ topics: [{ topic, partitions: [{ partition, offset }] }] });
    tell("offsets_committed", { offsets, success: true });
  } catch (error) {
    tell("offsets_committed", { offsets, success: false, error: String(error) });
    throw error; // KafkaJS tries again, or joins again
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

async function copyMessages(kafka) {
  const producer = kafka.producer({
    transactionalId: options["transactional-id"],
    idempotent: true,
    maxInFlightRequests: 1,
  });
  const consumer = newConsumer(kafka, { readUncommitted: false });
  process.once("SIGTERM", async () => {
    await consumer.disconnect();
    await producer.disconnect();
    process.exit(0);
  });
  await producer.connect();
  await consumer.connect();
  await consumer.subscribe({ topic: options["input-topic"], fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    eachBatch: async ({ batch, resolveOffset, heartbeat }) => {
      const size = Number(options["transaction-size"]);
      for (let from = 0; from < batch.messages.length; from += size) {
        const messages = batch.messages.slice(from, from + size);
        while (!(await copied(producer, batch, messages)));
        resolveOffset(messages.at(-1).offset);
        await heartbeat();
      }
    },
  });
}

async function copied(producer, { topic, partition }, messages) {
  const transaction = await producer.transaction();
  const copies = messages.map(({ key, value }) => ({ key, value }));
  const offset = String(Number(messages.at(-1).offset) + 1);
  const topics = [{ topic, partitions: [{ partition, offset }] }];
  await transaction.send({ topic: options["output-topic"], messages: copies });
  await transaction.sendOffsets({ consumerGroupId: options["group-id"], topics });
  const aborts = options["enable-random-aborts"] && Math.random() < 1 / 3;
  await (aborts ? transaction.abort() : transaction.commit());
  return !aborts;
}

const commands = { consume, produce, copy: copyMessages };
const command = commands[positionals[0]];
if (!command) {
  console.error("say consume, produce or copy");
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
