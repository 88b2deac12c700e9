import java.io.IOException;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A consumer and an exactly-once loop with the consumer protocol, where Kafka's own programs do not serve: the callback
 * of VerifiableConsumer does not wait, and TransactionalMessageCopier knows the classic protocol only. They take the
 * options of these, and the consumer tells the same lines. It also tells `partitions_revoking`, and then waits for a
 * line in its callback.
 */
public final class ConsumerProtocol {
    private static final Map<String, String> options = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        for (int at = 1; at + 1 < arguments.length; at += 2)
            options.put(arguments[at].substring(2), arguments[at + 1]);
        if (arguments[0].equals("copy"))
            copy();
        else
            consume();
    }

    private static KafkaConsumer<String, String> newConsumer(String bootstrap, String group) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("group.protocol", "consumer");
        settings.put("client.id", options.get("client-id"));
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("isolation.level", "read_committed");
        settings.put("max.poll.records", options.getOrDefault("transaction-size", "500"));
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private static void consume() {
        var consumer = newConsumer(options.get("bootstrap-server"), options.get("group-id"));
        consumer.subscribe(List.of(options.get("topic")), new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                tell("partitions_assigned", partitions);
            }

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                tell("partitions_revoking", partitions);
                waitForALine();
                tell("partitions_revoked", partitions);
            }

            @Override
            public void onPartitionsLost(Collection<TopicPartition> partitions) {
                tell("partitions_lost", partitions);
            }
        });
        while (true) {
            var records = consumer.poll(Duration.ofMillis(100));
            if (!records.isEmpty())
                commit(consumer, nextOffsets(records));
        }
    }

    private static void commit(KafkaConsumer<String, String> consumer, Map<TopicPartition, OffsetAndMetadata> offsets) {
        String list = offsets.entrySet().stream()
            .map(one -> String.format("{\"topic\":\"%s\",\"partition\":%d,\"offset\":%d}",
                one.getKey().topic(), one.getKey().partition(), one.getValue().offset()))
            .collect(Collectors.joining(","));
        try {
            consumer.commitSync(offsets);
            tell("offsets_committed", "\"success\":true,\"offsets\":[" + list + "]");
        } catch (KafkaException error) {
            tell("offsets_committed", "\"success\":false,\"error\":\"" + error.getClass().getName() + "\"");
        }
    }

    /** Copies messages and commits their offsets in one transaction, and aborts one in three. */
    private static void copy() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", options.get("broker-list"));
        settings.put("transactional.id", options.get("transactional-id"));
        var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        var consumer = newConsumer(options.get("broker-list"), options.get("consumer-group"));
        producer.initTransactions();
        consumer.subscribe(List.of(options.get("input-topic")));
        Random random = new Random();
        while (true) {
            var records = consumer.poll(Duration.ofMillis(100));
            if (records.isEmpty())
                continue;
            producer.beginTransaction();
            for (ConsumerRecord<String, String> record : records)
                producer.send(new ProducerRecord<>(options.get("output-topic"), record.key(), record.value()));
            producer.sendOffsetsToTransaction(nextOffsets(records), consumer.groupMetadata());
            if (random.nextInt(3) == 0) {
                producer.abortTransaction();
                for (TopicPartition partition : records.partitions())
                    consumer.seek(partition, records.records(partition).get(0).offset());
            } else {
                producer.commitTransaction();
            }
        }
    }

    private static Map<TopicPartition, OffsetAndMetadata> nextOffsets(ConsumerRecords<String, String> records) {
        return records.partitions().stream().collect(Collectors.toMap(one -> one, one -> {
            var some = records.records(one);
            return new OffsetAndMetadata(some.get(some.size() - 1).offset() + 1);
        }));
    }

    private static void waitForALine() {
        try {
            int read;
            do
                read = System.in.read();
            while (read != '\n' && read != -1);
        } catch (IOException error) {
            throw new RuntimeException(error);
        }
    }

    private static void tell(String name, Collection<TopicPartition> partitions) {
        String list = partitions.stream()
            .map(one -> String.format("{\"topic\":\"%s\",\"partition\":%d}", one.topic(), one.partition()))
            .collect(Collectors.joining(","));
        tell(name, "\"partitions\":[" + list + "]");
    }

    private static void tell(String name, String more) {
        System.out.println(String.format("{\"name\":\"%s\",%s}", name, more));
    }
}
