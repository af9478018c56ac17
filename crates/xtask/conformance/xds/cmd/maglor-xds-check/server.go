package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

// said is what a client has said on its stream.
type said struct {
	Type string `json:"type"`
	// ask, ack or nack.
	What  string   `json:"what"`
	Nonce string   `json:"nonce"`
	Error string   `json:"error"`
	Names []string `json:"names"`
	// What a client that returns says that it has.
	Has map[string]string `json:"has"`
}

// state is what is served: /set?node=ID&version=V&service=NAME&endpoints=A,B&answer=STATUS&bad=true.
type state struct {
	node, service, version string
	endpoints              []string
	// A route that answers by itself with this status; 0 = to the endpoints.
	answer uint32
	// A cluster that no client of ours may take.
	bad bool
}

// controlPlane is go-control-plane's server. It reports what it has received (GET /heard) and takes what to
// serve (PUT /set).
func controlPlane(address string) error {
	snapshots := cache.NewSnapshotCache(true, cache.IDHash{}, nil)
	var lock sync.Mutex
	heard := []said{}
	callbacks := server.CallbackFuncs{
		StreamDeltaRequestFunc: func(_ int64, request *discovery.DeltaDiscoveryRequest) error {
			lock.Lock()
			defer lock.Unlock()
			heard = append(heard, understood(request))
			return nil
		},
	}
	http.HandleFunc("/heard", func(writer http.ResponseWriter, _ *http.Request) {
		lock.Lock()
		defer lock.Unlock()
		_ = json.NewEncoder(writer).Encode(heard)
	})
	http.HandleFunc("/set", func(writer http.ResponseWriter, request *http.Request) {
		query := request.URL.Query()
		answer, _ := strconv.ParseUint(query.Get("answer"), 10, 32)
		wanted := state{node: query.Get("node"), service: query.Get("service"),
			version: query.Get("version"), answer: uint32(answer), bad: query.Get("bad") == "true"}
		if list := query.Get("endpoints"); list != "" {
			wanted.endpoints = strings.Split(list, ",")
		}
		if err := wanted.serve(snapshots); err != nil {
			http.Error(writer, err.Error(), http.StatusBadRequest)
		}
	})
	serve := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(serve,
		server.NewServer(context.Background(), snapshots, callbacks))
	socket, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	go func() { fail(serve.Serve(socket)) }()
	return control()
}

func understood(request *discovery.DeltaDiscoveryRequest) said {
	url := request.TypeUrl
	one := said{Type: url[strings.LastIndex(url, ".")+1:], What: "ask", Nonce: request.ResponseNonce,
		Names: request.ResourceNamesSubscribe, Has: request.InitialResourceVersions}
	if request.ErrorDetail != nil {
		one.What, one.Error = "nack", request.ErrorDetail.Message
	} else if request.ResponseNonce != "" {
		one.What = "ack"
	}
	return one
}

func packed(message proto.Message) *anypb.Any {
	packed, err := anypb.New(message)
	fail(err)
	return packed
}

// serve puts all of it in place of what was served to the node.
func (wanted state) serve(snapshots cache.SnapshotCache) error {
	assignment, err := wanted.assignment()
	if err != nil {
		return err
	}
	snapshot, err := cache.NewSnapshot(wanted.version, map[resource.Type][]types.Resource{
		resource.ListenerType: {wanted.listener()},
		resource.RouteType:    {wanted.routes()},
		resource.ClusterType:  {wanted.cluster()},
		resource.EndpointType: {assignment},
	})
	if err != nil {
		return err
	}
	return snapshots.SetSnapshot(context.Background(), wanted.node, snapshot)
}

func aggregated() *core.ConfigSource {
	return &core.ConfigSource{
		ResourceApiVersion:    core.ApiVersion_V3,
		ConfigSourceSpecifier: &core.ConfigSource_Ads{Ads: &core.AggregatedConfigSource{}},
	}
}

func (wanted state) listener() *listener.Listener {
	manager := &hcm.HttpConnectionManager{
		StatPrefix: "x",
		RouteSpecifier: &hcm.HttpConnectionManager_Rds{
			Rds: &hcm.Rds{ConfigSource: aggregated(), RouteConfigName: "routes"},
		},
		HttpFilters: []*hcm.HttpFilter{{
			Name:       "envoy.filters.http.router",
			ConfigType: &hcm.HttpFilter_TypedConfig{TypedConfig: packed(&router.Router{})},
		}},
	}
	return &listener.Listener{
		Name:        wanted.service,
		ApiListener: &listener.ApiListener{ApiListener: packed(manager)},
	}
}

func (wanted state) routes() *route.RouteConfiguration {
	one := &route.Route{
		Match: &route.RouteMatch{PathSpecifier: &route.RouteMatch_Prefix{Prefix: "/"}},
		Action: &route.Route_Route{Route: &route.RouteAction{
			ClusterSpecifier: &route.RouteAction_Cluster{Cluster: "echo"},
		}},
	}
	if wanted.answer != 0 {
		one.Action = &route.Route_DirectResponse{
			DirectResponse: &route.DirectResponseAction{Status: wanted.answer},
		}
	}
	return &route.RouteConfiguration{Name: "routes", VirtualHosts: []*route.VirtualHost{{
		Name: "all", Domains: []string{"*"}, Routes: []*route.Route{one},
	}}}
}

func (wanted state) cluster() *cluster.Cluster {
	one := &cluster.Cluster{
		Name:                 "echo",
		ConnectTimeout:       durationpb.New(time.Second),
		ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_EDS},
		EdsClusterConfig:     &cluster.Cluster_EdsClusterConfig{EdsConfig: aggregated()},
		LbPolicy:             cluster.Cluster_ROUND_ROBIN,
	}
	if wanted.bad {
		// TLS that is not the mesh's: to speak plain text instead would be wrong.
		one.TransportSocket = &core.TransportSocket{Name: "envoy.transport_sockets.tls"}
	}
	return one
}

func (wanted state) assignment() (*endpoint.ClusterLoadAssignment, error) {
	var all []*endpoint.LbEndpoint
	for _, text := range wanted.endpoints {
		host, port, err := net.SplitHostPort(text)
		if err != nil {
			return nil, err
		}
		number, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", text, err)
		}
		address := &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
			Address:       host,
			PortSpecifier: &core.SocketAddress_PortValue{PortValue: uint32(number)},
		}}}
		all = append(all, &endpoint.LbEndpoint{HostIdentifier: &endpoint.LbEndpoint_Endpoint{
			Endpoint: &endpoint.Endpoint{Address: address},
		}})
	}
	return &endpoint.ClusterLoadAssignment{
		ClusterName: "echo",
		Endpoints:   []*endpoint.LocalityLbEndpoints{{LbEndpoints: all}},
	}, nil
}
