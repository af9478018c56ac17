package main

import (
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

// Commands for the server in the metadata of a call.
const (
	hangKey   = "x-hang"   // wait for the end of the call, and remember it under this name
	endOfKey  = "x-end-of" // answer how the call of this name ended
	refuseKey = "x-refuse" // answer before the messages have been read
	reasonKey = "x-reason" // trailer: the answer
	leftKey   = "x-left-ms"
	binaryKey = "x-blob-bin"
)

// A server that reports what it saw of a call.
type witness struct {
	testgrpc.UnimplementedTestServiceServer
	mutex sync.Mutex
	ends  map[string]string
}

func newWitness() *witness { return &witness{ends: map[string]string{}} }

func first(ctx context.Context, key string) string {
	incoming, _ := metadata.FromIncomingContext(ctx)
	if values := incoming.Get(key); len(values) > 0 {
		return values[0]
	}
	return ""
}

// hang waits for the end of the call, and remembers why it came.
func (w *witness) hang(ctx context.Context, name string) error {
	select {
	case <-ctx.Done():
	case <-time.After(20 * time.Second):
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.ends[name] = fmt.Sprint(ctx.Err())
	return status.FromContextError(ctx.Err()).Err()
}

// EmptyCall reports the remaining deadline, and how an earlier call ended.
func (w *witness) EmptyCall(ctx context.Context, _ *testpb.Empty) (*testpb.Empty, error) {
	if name := first(ctx, hangKey); name != "" {
		return nil, w.hang(ctx, name)
	}
	left := "none"
	if deadline, ok := ctx.Deadline(); ok {
		left = strconv.FormatInt(time.Until(deadline).Milliseconds(), 10)
	}
	w.mutex.Lock()
	reason := w.ends[first(ctx, endOfKey)]
	w.mutex.Unlock()
	trailer := metadata.Pairs(leftKey, left, reasonKey, reason)
	if blob := first(ctx, binaryKey); blob != "" {
		trailer.Append(binaryKey, blob)
	}
	return &testpb.Empty{}, grpc.SetTrailer(ctx, trailer)
}

// UnaryCall sends the payload back.
func (w *witness) UnaryCall(_ context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	return &testpb.SimpleResponse{Payload: in.Payload}, nil
}

// StreamingInputCall reads all, or answers before it has read anything.
func (w *witness) StreamingInputCall(stream testgrpc.TestService_StreamingInputCallServer) error {
	if first(stream.Context(), refuseKey) != "" {
		return status.Error(codes.ResourceExhausted, "no room")
	}
	sum := 0
	for {
		in, err := stream.Recv()
		if err == io.EOF {
			return stream.SendAndClose(&testpb.StreamingInputCallResponse{AggregatedPayloadSize: int32(sum)})
		}
		if err != nil {
			return err
		}
		sum += len(in.GetPayload().GetBody())
	}
}

// FullDuplexCall sends each payload back.
func (w *witness) FullDuplexCall(stream testgrpc.TestService_FullDuplexCallServer) error {
	for {
		in, err := stream.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			w.mutex.Lock()
			w.ends[first(stream.Context(), hangKey)] = fmt.Sprint(stream.Context().Err())
			w.mutex.Unlock()
			return err
		}
		if err := stream.Send(&testpb.StreamingOutputCallResponse{Payload: in.Payload}); err != nil {
			return err
		}
	}
}
