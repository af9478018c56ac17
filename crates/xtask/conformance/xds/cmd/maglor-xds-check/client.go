package main

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	_ "google.golang.org/grpc/xds"
)

// calls is what came of some calls.
type calls struct {
	// By the server's address.
	Peers  map[string]int `json:"peers"`
	Failed int            `json:"failed"`
	Error  string         `json:"error"`
}

// callClient calls what its control plane says: GET /calls?n=N[&header=VALUE of x-version].
func callClient(target string) error {
	connection, err := grpc.NewClient("xds:///"+target,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	stub := grpc_health_v1.NewHealthClient(connection)
	http.HandleFunc("/calls", func(writer http.ResponseWriter, request *http.Request) {
		query := request.URL.Query()
		count, err := strconv.Atoi(query.Get("n"))
		if err != nil {
			http.Error(writer, err.Error(), http.StatusBadRequest)
			return
		}
		made := calls{Peers: map[string]int{}}
		for range count {
			address, err := call(stub, query.Get("header"))
			if err != nil {
				made.Failed++
				made.Error = err.Error()
				continue
			}
			made.Peers[address]++
		}
		_ = json.NewEncoder(writer).Encode(made)
	})
	return control()
}

func call(stub grpc_health_v1.HealthClient, header string) (string, error) {
	background, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if header != "" {
		background = metadata.AppendToOutgoingContext(background, "x-version", header)
	}
	var who peer.Peer
	_, err := stub.Check(background, &grpc_health_v1.HealthCheckRequest{}, grpc.Peer(&who))
	if err != nil {
		return "", err
	}
	return who.Addr.String(), nil
}
