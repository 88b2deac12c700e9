// A consumer, a producer and an exactly-once loop of franz-go, as a user writes them. They take the options of Kafka's
// VerifiableConsumer, VerifiableProducer and TransactionalMessageCopier, and the first two tell what happens in the
// same lines of JSON.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const usage = "say consume, produce or copy"

type fields = map[string]any

var (
	printing sync.Mutex
	lines    = json.NewEncoder(os.Stdout)

	bootstrap   = flag.String("bootstrap-server", "", "")
	topic       = flag.String("topic", "", "")
	clientID    = flag.String("client-id", "franz-go", "")
	group       = flag.String("group-id", "", "")
	instance    = flag.String("group-instance-id", "", "")
	session     = flag.Int("session-timeout", 45_000, "milliseconds")
	maxMessages = flag.Int("max-messages", -1, "")
	throughput  = flag.Float64("throughput", -1, "messages per second")
	keys        = flag.Int("repeating-keys", 1, "")
	prefix      = flag.String("value-prefix", "", "")

	input           = flag.String("input-topic", "", "")
	output          = flag.String("output-topic", "", "")
	transactionalID = flag.String("transactional-id", "", "")
	size            = flag.Int("transaction-size", 200, "messages")
	aborts          = flag.Bool("enable-random-aborts", false, "")
)

func main() {
	if len(os.Args) < 2 {
		fail(usage)
	}
	flag.CommandLine.Parse(os.Args[2:])
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	switch os.Args[1] {
	case "consume":
		consume(ctx)
	case "produce":
		produce(ctx)
	case "copy":
		copyMessages(ctx)
	default:
		fail(usage)
	}
	tell("shutdown_complete", fields{})
}

func tell(name string, more fields) {
	printing.Lock()
	defer printing.Unlock()
	more["name"] = name
	lines.Encode(more)
}

func fail(what any) {
	fmt.Fprintln(os.Stderr, what)
	os.Exit(1)
}

func connection(more ...kgo.Opt) []kgo.Opt {
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(*bootstrap, ",")...),
		kgo.ClientID(*clientID),
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelWarn, nil)),
	}
	return append(options, more...)
}

func connected(more ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(connection(more...)...)
	if err != nil {
		fail(err)
	}
	tell("startup_complete", fields{})
	return client
}

func membership(topic string, more ...kgo.Opt) []kgo.Opt {
	options := []kgo.Opt{
		kgo.ConsumerGroup(*group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(time.Duration(*session) * time.Millisecond),
		kgo.HeartbeatInterval(time.Duration(*session) * time.Millisecond / 10),
	}
	return append(options, more...)
}

func consume(ctx context.Context) {
	options := membership(
		*topic,
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(tellPartitions("partitions_assigned")),
		kgo.OnPartitionsRevoked(tellPartitions("partitions_revoked")),
		kgo.OnPartitionsLost(tellPartitions("partitions_lost")),
	)
	if *instance != "" {
		options = append(options, kgo.InstanceID(*instance))
	}
	client := connected(options...)
	defer client.Close() // leaves the group
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		fetches.EachError(func(_ string, partition int32, err error) {
			if ctx.Err() == nil {
				tell("fetch_failed", fields{"partition": partition, "error": err.Error()})
			}
		})
		if records := fetches.Records(); len(records) > 0 {
			tellRecords(records)
			commit(client, records)
		}
	}
}

func commit(client *kgo.Client, records []*kgo.Record) {
	ends := map[int32]int64{}
	for _, record := range records {
		ends[record.Partition] = record.Offset + 1
	}
	offsets := []fields{}
	for partition, offset := range ends {
		offsets = append(offsets, fields{"topic": *topic, "partition": partition, "offset": offset})
	}
	// Not bound to the signal's context: what was consumed is committed before the member leaves.
	if err := client.CommitRecords(context.Background(), records...); err != nil {
		tell("offsets_committed", fields{"offsets": offsets, "success": false, "error": err.Error()})
	} else {
		tell("offsets_committed", fields{"offsets": offsets, "success": true})
	}
}

func tellPartitions(name string) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
		partitions := []fields{}
		for topic, numbers := range changed {
			for _, number := range numbers {
				partitions = append(partitions, fields{"topic": topic, "partition": number})
			}
		}
		tell(name, fields{"partitions": partitions})
	}
}

func tellRecords(records []*kgo.Record) {
	for _, one := range records {
		where := fields{"topic": one.Topic, "partition": one.Partition, "offset": one.Offset}
		where["value"] = string(one.Value)
		tell("record_data", where)
	}
}

func produce(ctx context.Context) {
	client := connected(kgo.DefaultProduceTopic(*topic))
	defer client.Close()
	for number := 0; (*maxMessages < 0 || number < *maxMessages) && ctx.Err() == nil; number++ {
		value := strconv.Itoa(number)
		if *prefix != "" {
			value = *prefix + "." + value
		}
		record := &kgo.Record{Key: []byte(strconv.Itoa(number % *keys)), Value: []byte(value)}
		client.Produce(context.Background(), record, func(sent *kgo.Record, err error) {
			if err != nil {
				tell("producer_send_error", fields{"value": value, "message": err.Error()})
				return
			}
			where := fields{"topic": *topic, "partition": sent.Partition, "offset": sent.Offset, "value": value}
			tell("producer_send_success", where)
		})
		if *throughput > 0 {
			time.Sleep(time.Duration(float64(time.Second) / *throughput))
		}
	}
	if err := client.Flush(context.Background()); err != nil {
		fail(err)
	}
}

func copyMessages(ctx context.Context) {
	session, err := kgo.NewGroupTransactSession(connection(membership(
		*input,
		kgo.TransactionalID(*transactionalID),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.DefaultProduceTopic(*output),
	)...)...)
	if err != nil {
		fail(err)
	}
	defer session.Close()
	// Ends the transaction that a killed predecessor left open; until then its offsets are not stable. Otherwise it is
	// asked for with the first transaction, and the offsets wait until the old one times out.
	if _, _, err := session.Client().ProducerID(ctx); err != nil {
		fail(err)
	}
	for ctx.Err() == nil {
		records := session.PollRecords(ctx, *size).Records()
		if len(records) == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			fail(err)
		}
		copies := []*kgo.Record{}
		for _, one := range records {
			copies = append(copies, &kgo.Record{Key: one.Key, Value: one.Value})
		}
		if err := session.ProduceSync(context.Background(), copies...).FirstErr(); err != nil {
			tell("producer_send_error", fields{"message": err.Error()}) // the session aborts
		}
		decision := kgo.TransactionEndTry(!*aborts || rand.IntN(3) > 0)
		if _, err := session.End(context.Background(), decision); err != nil {
			fail(err)
		}
	}
}
