package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

type client = testgrpc.TestServiceClient

var cases = []struct {
	name string
	run  func(context.Context, client) error
}{
	{"large_message_4mb_each_way", largeMessage},
	{"large_messages_in_one_stream", largeStream},
	{"calls_above_the_limit_of_the_client_connection", manyCalls},
	{"streams_above_the_limit_of_a_server_connection", openStreams},
	{"deadline_reaches_server", deadlineReaches},
	{"deadline_ends_the_call_on_both_sides", deadlineEnds},
	{"cancel_reaches_server", cancelReaches},
	{"cancel_of_a_stream_reaches_server", cancelStream},
	{"answer_before_the_end_of_the_request", earlyAnswer},
	{"binary_metadata_in_trailers", binaryTrailer},
	{"idle_stream_stays_open", idleStream},
	{"calls_while_the_server_renews_connections", renewal},
}

func payload(size int, seed byte) *testpb.Payload {
	body := make([]byte, size)
	for i := range body {
		body[i] = byte(i%251) + seed
	}
	return &testpb.Payload{Body: body}
}

func same(got, want *testpb.Payload) error {
	if !bytes.Equal(got.GetBody(), want.GetBody()) {
		return fmt.Errorf("%d bytes came back, other than the %d sent", len(got.GetBody()), len(want.GetBody()))
	}
	return nil
}

func expect(err error, code codes.Code) error {
	if status.Code(err) != code {
		return fmt.Errorf("ended with %v, expected %v", err, code)
	}
	return nil
}

func largeMessage(ctx context.Context, c client) error {
	for i := range 10 {
		sent := payload(4_000_000, byte(i))
		response, err := c.UnaryCall(ctx, &testpb.SimpleRequest{Payload: sent})
		if err != nil {
			return err
		}
		if err := same(response.Payload, sent); err != nil {
			return err
		}
	}
	return nil
}

func largeStream(ctx context.Context, c client) error {
	stream, err := c.FullDuplexCall(ctx)
	if err != nil {
		return err
	}
	for i := range 16 {
		if err := echo(stream, payload(4_000_000, byte(i))); err != nil {
			return err
		}
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	if _, err := stream.Recv(); err != io.EOF {
		return fmt.Errorf("ended with %v", err)
	}
	return nil
}

// atOnce runs something so many times at once, and returns a failure if there was one.
func atOnce(count int, run func(i int) error) (failed error) {
	results := make(chan error, count)
	for i := range count {
		go func() { results <- run(i) }()
	}
	for range count {
		if err := <-results; err != nil {
			failed = err
		}
	}
	return failed
}

// More calls than a client's connection to the proxy may have at once (128): some wait.
func manyCalls(ctx context.Context, c client) error {
	return atOnce(600, func(i int) error {
		sent := payload(10_000, byte(i))
		response, err := c.UnaryCall(ctx, &testpb.SimpleRequest{Payload: sent})
		if err != nil {
			return err
		}
		return same(response.Payload, sent)
	})
}

// More open streams than the proxy puts on one connection to a server (100): it opens another.
func openStreams(ctx context.Context, c client) error {
	const streams = 120
	var open sync.WaitGroup
	open.Add(streams)
	return atOnce(streams, func(i int) error {
		stream, err := c.FullDuplexCall(ctx)
		if err == nil {
			err = echo(stream, payload(1000, byte(i)))
		}
		open.Done()
		if err != nil {
			return err
		}
		open.Wait()
		return echo(stream, payload(1000, byte(i+1)))
	})
}

// echo sends a message, and expects it back.
func echo(stream testgrpc.TestService_FullDuplexCallClient, sent *testpb.Payload) error {
	if err := stream.Send(&testpb.StreamingOutputCallRequest{Payload: sent}); err != nil {
		return err
	}
	response, err := stream.Recv()
	if err != nil {
		return err
	}
	return same(response.Payload, sent)
}

func deadlineReaches(ctx context.Context, c client) error {
	for _, patience := range []time.Duration{1500 * time.Millisecond, 10 * time.Second} {
		ctx, cancel := context.WithTimeout(ctx, patience)
		var trailer metadata.MD
		_, err := c.EmptyCall(ctx, &testpb.Empty{}, grpc.Trailer(&trailer))
		cancel()
		if err != nil {
			return err
		}
		left, err := strconv.ParseInt(fmt.Sprint(trailer.Get(leftKey)[0]), 10, 64)
		if err != nil || left <= 0 || left > patience.Milliseconds() {
			return fmt.Errorf("of %v the server saw %v left", patience, trailer.Get(leftKey))
		}
	}
	return nil
}

// endOf asks the server until it knows how a call ended.
func endOf(ctx context.Context, c client, name string) (string, error) {
	for {
		ctx := metadata.AppendToOutgoingContext(ctx, endOfKey, name)
		var trailer metadata.MD
		if _, err := c.EmptyCall(ctx, &testpb.Empty{}, grpc.Trailer(&trailer)); err != nil {
			return "", fmt.Errorf("asking how the call ended: %w", err)
		}
		if reasons := trailer.Get(reasonKey); len(reasons) > 0 && reasons[0] != "" {
			return reasons[0], nil
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func deadlineEnds(ctx context.Context, c client) error {
	name := fmt.Sprintf("deadline-%d", time.Now().UnixNano())
	started := time.Now()
	hanging, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	_, err := c.EmptyCall(metadata.AppendToOutgoingContext(hanging, hangKey, name), &testpb.Empty{})
	if err := expect(err, codes.DeadlineExceeded); err != nil {
		return err
	}
	if _, err := endOf(ctx, c, name); err != nil {
		return err
	}
	if took := time.Since(started); took > 3*time.Second {
		return fmt.Errorf("the server's call ended after %v", took)
	}
	return nil
}

func cancelReaches(ctx context.Context, c client) error {
	name := fmt.Sprintf("cancel-%d", time.Now().UnixNano())
	hanging, cancel := context.WithCancel(ctx)
	time.AfterFunc(200*time.Millisecond, cancel)
	started := time.Now()
	_, err := c.EmptyCall(metadata.AppendToOutgoingContext(hanging, hangKey, name), &testpb.Empty{})
	if err := expect(err, codes.Canceled); err != nil {
		return err
	}
	return canceledOnServer(ctx, c, name, started)
}

func canceledOnServer(ctx context.Context, c client, name string, started time.Time) error {
	reason, err := endOf(ctx, c, name)
	if err != nil {
		return err
	}
	if reason != context.Canceled.Error() {
		return fmt.Errorf("the server saw %q", reason)
	}
	if took := time.Since(started); took > 3*time.Second {
		return fmt.Errorf("the server's call ended after %v", took)
	}
	return nil
}

func cancelStream(ctx context.Context, c client) error {
	name := fmt.Sprintf("stream-%d", time.Now().UnixNano())
	hanging, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctx, hangKey, name))
	defer cancel()
	stream, err := c.FullDuplexCall(hanging)
	if err != nil {
		return err
	}
	if err := echo(stream, payload(1000, 1)); err != nil {
		return err
	}
	started := time.Now()
	cancel()
	return canceledOnServer(ctx, c, name, started)
}

func earlyAnswer(ctx context.Context, c client) error {
	for range 20 {
		ctx := metadata.AppendToOutgoingContext(ctx, refuseKey, "yes")
		stream, err := c.StreamingInputCall(ctx)
		if err != nil {
			return err
		}
		for range 100 {
			if stream.Send(&testpb.StreamingInputCallRequest{Payload: payload(100_000, 0)}) != nil {
				break
			}
		}
		_, err = stream.CloseAndRecv()
		if err := expect(err, codes.ResourceExhausted); err != nil {
			return err
		}
	}
	return nil
}

func binaryTrailer(ctx context.Context, c client) error {
	blob := make([]byte, 256)
	for i := range blob {
		blob[i] = byte(i)
	}
	ctx = metadata.AppendToOutgoingContext(ctx, binaryKey, string(blob))
	var trailer metadata.MD
	if _, err := c.EmptyCall(ctx, &testpb.Empty{}, grpc.Trailer(&trailer)); err != nil {
		return err
	}
	if got := trailer.Get(binaryKey); len(got) != 1 || got[0] != string(blob) {
		return fmt.Errorf("came back as %q", got)
	}
	return nil
}

func idleStream(ctx context.Context, c client) error {
	stream, err := c.FullDuplexCall(ctx)
	if err != nil {
		return err
	}
	sent := payload(1000, 7)
	for range 3 {
		if err := echo(stream, sent); err != nil {
			return err
		}
		time.Sleep(time.Second)
	}
	return stream.CloseSend()
}

// The server ends connections in order (GOAWAY) after 300 ms each, under load.
func renewal(ctx context.Context, c client) error {
	end := time.Now().Add(5 * time.Second)
	return atOnce(16, func(i int) error {
		for n := 0; time.Now().Before(end); n++ {
			sent := payload(1000, byte(i+n))
			response, err := c.UnaryCall(ctx, &testpb.SimpleRequest{Payload: sent})
			if err == nil {
				err = same(response.Payload, sent)
			}
			if err != nil {
				return fmt.Errorf("call %d: %w", n, err)
			}
		}
		return nil
	})
}
