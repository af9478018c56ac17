# maglor-proxy, one static program in an empty image. From the root of the sources:
#   docker buildx build --platform linux/amd64,linux/arm64 -f deploy/docker/proxy.Dockerfile -t maglor-proxy:0.1.0 .
FROM rust:1.95-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends cmake
WORKDIR /maglor
COPY . .
# The target is named, so that build scripts are not linked statically, too.
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/maglor/target \
    target="$(rustc -vV | sed -n 's/^host: //p')" && \
    RUSTFLAGS="-C target-feature=+crt-static" \
    cargo build --locked --release --target "$target" -p maglor-proxy --bin maglor-proxy && \
    cp "target/$target/release/maglor-proxy" /maglor-proxy

FROM scratch
COPY --from=build /maglor-proxy /maglor-proxy
USER 2102:2102
ENTRYPOINT ["/maglor-proxy"]
