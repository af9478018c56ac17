package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	testpb "google.golang.org/grpc/interop/grpc_testing"
)

const (
	// Of each kind of client.
	clients = 2
	// Long streams at a time.
	longStreams = 4
	// Between two messages of a long stream.
	pause = 200 * time.Millisecond
	// Messages of a short stream.
	messages = 3
	// Calls of a channel that is not kept: one that never connects again never sees a proxy.
	calls = 20
	// A call takes no longer, or is lost; a long stream its time more.
	patience = 10 * time.Second
)

func start(address string, long time.Duration, rate float64, tally *tally) {
	for range clients {
		go repeat(address, rate, 0, tally, unary)
		go repeat(address, rate, calls, tally, unary)
		go repeat(address, rate, calls, tally, short)
	}
	for index := range longStreams {
		go func() {
			// One after the other, so that some begin and some end at any time.
			time.Sleep(long * time.Duration(index) / longStreams)
			for tally.begin() {
				tally.end(stream(address, long, tally))
			}
		}()
	}
}

// No call is repeated by the client's library but those that no server has seen (gRFC A6, transparent retries).
func channel(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(), grpc.WithAuthority("web.shop"))
}

type call = func(context.Context, testgrpc.TestServiceClient, *testpb.Payload) error

// repeat makes calls one after the other; a new channel for every so many, or one for all.
func repeat(address string, rate float64, renewed int, tally *tally, one call) {
	pace := time.NewTicker(time.Duration(float64(time.Second) / rate))
	var connection *grpc.ClientConn
	for count := 0; ; count++ {
		<-pace.C
		if connection == nil || (renewed > 0 && count%renewed == 0) {
			if connection != nil {
				connection.Close()
			}
			var err error
			if connection, err = channel(address); err != nil {
				tally.note(0, err)
				connection = nil
				continue
			}
		}
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		err := one(ctx, testgrpc.NewTestServiceClient(connection), payload(count))
		cancel()
		tally.note(time.Since(began), err)
	}
}

func payload(count int) *testpb.Payload {
	return &testpb.Payload{Body: binary.BigEndian.AppendUint64(nil, uint64(count))}
}

func same(got, want *testpb.Payload) error {
	if !bytes.Equal(got.GetBody(), want.GetBody()) {
		return fmt.Errorf("another message came back")
	}
	return nil
}

func unary(ctx context.Context, client testgrpc.TestServiceClient, sent *testpb.Payload) error {
	response, err := client.UnaryCall(ctx, &testpb.SimpleRequest{Payload: sent})
	if err != nil {
		return err
	}
	return same(response.Payload, sent)
}

func short(ctx context.Context, client testgrpc.TestServiceClient, sent *testpb.Payload) error {
	request := &testpb.StreamingOutputCallRequest{Payload: sent}
	for range messages {
		request.ResponseParameters = append(request.ResponseParameters, &testpb.ResponseParameters{})
	}
	stream, err := client.StreamingOutputCall(ctx, request)
	if err != nil {
		return err
	}
	for received := 0; ; received++ {
		response, err := stream.Recv()
		switch {
		case err == io.EOF && received == messages:
			return nil
		case err == io.EOF:
			return fmt.Errorf("a short stream ended after %d messages of %d", received, messages)
		case err != nil:
			return err
		}
		if err := same(response.Payload, sent); err != nil {
			return err
		}
	}
}

// stream is a long one, on a channel of its own: each message comes back, and then its end.
func stream(address string, long time.Duration, tally *tally) error {
	connection, err := channel(address)
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), long+patience)
	defer cancel()
	stream, err := testgrpc.NewTestServiceClient(connection).FullDuplexCall(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	cut := func(err error) error {
		return fmt.Errorf("a stream was cut after %v: %w", time.Since(began).Round(time.Second), err)
	}
	for count := 0; time.Since(began) < long; count++ {
		sent := payload(count)
		if err := stream.Send(&testpb.StreamingOutputCallRequest{Payload: sent}); err != nil {
			// What has happened, the other direction says.
			if _, why := stream.Recv(); why != nil {
				err = why
			}
			return cut(err)
		}
		response, err := stream.Recv()
		if err != nil {
			return cut(err)
		}
		if err := same(response.Payload, sent); err != nil {
			return cut(err)
		}
		tally.message()
		time.Sleep(pause)
	}
	if err := stream.CloseSend(); err != nil {
		return cut(err)
	}
	if _, err := stream.Recv(); err != io.EOF {
		return cut(fmt.Errorf("in place of its end: %v", err))
	}
	return nil
}
