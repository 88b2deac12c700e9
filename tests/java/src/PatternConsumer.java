import java.time.Duration;
import java.util.Collection;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A consumer that subscribes by an expression which the coordinator resolves; Kafka's tools only resolve them
 * themselves. Writes the same lines as kafka-verifiable-consumer.
 *
 * Arguments: bootstrap servers, group id, expression.
 */
public final class PatternConsumer {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("group.protocol", "consumer");
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(new SubscriptionPattern(arguments[2]), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    say("partitions_assigned", partitions);
                }

                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    say("partitions_revoked", partitions);
                }
            });
            while (true)
                consumer.poll(Duration.ofMillis(100));
        }
    }

    private static void say(String name, Collection<TopicPartition> partitions) {
        String list = partitions.stream()
            .map(one -> String.format("{\"topic\":\"%s\",\"partition\":%d}", one.topic(), one.partition()))
            .collect(Collectors.joining(","));
        System.out.println(String.format("{\"name\":\"%s\",\"partitions\":[%s]}", name, list));
    }
}
