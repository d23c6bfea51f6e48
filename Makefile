# bentpipe. `make help` lists the targets; each installs what it misses first.
.PHONY: help setup demo advisor advisor-check web-check test lint conformance bench-gateway bench-sim bench-saratoga bench-packet bench-pair bench-web programs soak miri wheel python-test notebooks bench-python deb deb-check fuzz clean
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' Makefile

setup: ## install what the build and the demo need (packages, toolchain, uPlot)
	@scripts/setup build

demo: ## real split-TCP gateway against end-to-end TCP over an emulated GEO link
	@scripts/setup build
	@scripts/cargo build --release --bin bentpipe
	@scripts/as-root target/release/bentpipe demo --report demo-report $(ARGS)

advisor: ## "what would a PEP buy on my link?": a page with the simulator in it, as files for any web server, in target/advisor
	@scripts/setup build
	@scripts/advisor build

advisor-check: ## that page in Chromium: its figures, by keyboard, at three widths, light and dark; prints how fast it answers
	@scripts/setup test
	@scripts/advisor check $(ARGS)

web-check: ## bentpipe web in Chromium: each flow from opening to download, by keyboard, at three widths, light and dark
	@scripts/setup test
	@scripts/web-check $(ARGS)

test: ## all tests that need no special hardware; counts what was skipped and why
	@scripts/setup test
	@scripts/test $(ARGS)

lint: ## format, clippy, docs, licences, crate arrows, wasm32 build of the pure crates
	@scripts/setup test
	@scripts/lint

bench-gateway: ## kernel forwarding, HAProxy and ours in turn; writes bench/gateway.json
	@scripts/setup test
	@scripts/cargo build --release --bin bentpipe
	@scripts/as-root target/release/bentpipe bench gateway --json bench/gateway.json $(ARGS)

bench-pair: ## two gateways in a row, with the kernel's TCP between them and with QUIC, in turn; writes bench/pair.json
	@scripts/setup test
	@scripts/cargo build --release --bin bentpipe
	@scripts/as-root target/release/bentpipe bench gateway --subjects bentpipe-twice,bentpipe-quic --json bench/pair.json $(ARGS)

bench-sim: ## ns-2, ns-3 and our simulator in turn; writes bench/sim.json
	@scripts/setup sim
	@scripts/pgo
	@target/release/bentpipe bench sim --json bench/sim.json $(ARGS)

bench-saratoga: ## files by Saratoga, iperf3 over UDP and TCP in turn; writes bench/saratoga.json
	@scripts/setup test
	@scripts/cargo build --release --bin bentpipe
	@scripts/as-root target/release/bentpipe bench saratoga --json bench/saratoga.json $(ARGS)

bench-web: ## what 20 browsers cost that watch a lab run: the server's processor time, and lateness with and without them; ARGS="--rounds 5"
	@scripts/setup test
	@scripts/cargo build --release --bin bentpipe
	@scripts/as-root node web/web-bench.mjs target/release/bentpipe $(ARGS)

bench-packet: ## our TCP over TUN, smoltcp's and the kernel's in turn, Snoop, the host half; writes bench/packet.json
	@scripts/setup test
	@scripts/cargo build --release --bin bentpipe
	@scripts/cargo build --release -p bentpipe-bench --example smoltcp
	@scripts/as-root target/release/bentpipe bench packet --json bench/packet.json $(ARGS)

# The scripts, and who is judged: `object` (our TCP) or `kernel`.
SCRIPTS ?= crates/conformance/scripts
PEER ?= object

conformance: ## packetdrill scripts judge our TCP; SCRIPTS=DIR: those there, PEER=kernel: this kernel's TCP
	@scripts/setup build
	@scripts/conformance $(PEER) $(SCRIPTS) $(ARGS)

fuzz: ## arbitrary input to all that reads any; grows fuzz/corpus; ARGS=20: seconds each (default 60)
	@scripts/setup build
	@scripts/fuzz $(ARGS)

miri: ## the tests inside pure crates under Miri; ARGS=wire: those of that crate
	@scripts/setup build
	@scripts/miri $(ARGS)

programs: ## real programs over a satellite link and through the gateway; ARGS=git: those of that name
	@scripts/setup programs
	@scripts/as-root scripts/programs $(ARGS)

soak: ## churn, kills, floods and flushes through a real gateway: memory and descriptors stay flat; ARGS=60: seconds, ARGS=--asan: sanitized
	@scripts/setup build
	@scripts/as-root scripts/soak $(ARGS)

wheel: ## the Python package, into target/wheels (docs/python.md)
	@scripts/setup python
	@scripts/wheel $(ARGS)

python-test: ## that package in a fresh environment: ruff, mypy, pytest against pandas, polars, pyarrow, a Dask cluster
	@scripts/setup python
	@scripts/wheel
	@scripts/cargo build --release --bin bentpipe
	@scripts/python-test $(ARGS)

notebooks: ## its notebooks with their figures, as pages in target/notebooks
	@scripts/setup python
	@scripts/wheel
	@scripts/notebooks

bench-python: ## the package beside the command: overhead, samples to polars, a Dask cluster; ARGS=shards: a million points
	@scripts/setup python
	@scripts/wheel
	@scripts/cargo build --release --bin bentpipe
	@scripts/python-bench $(ARGS)

deb: ## build the Debian package into target/debian
	@scripts/setup build
	@scripts/deb

deb-check: ## try that package under a real systemd, in namespaces of its own
	@scripts/setup test
	@scripts/as-root scripts/deb-check $(ARGS)

clean: ## remove build output, reports, and what killed runs left in the kernel
	@if [ -x target/release/bentpipe ]; then scripts/as-root target/release/bentpipe lab clean; fi
	@scripts/cargo clean
	@rm -rf web/node_modules demo-report bench/gateway.json bench/sim.json bench/saratoga.json bench/packet.json bench/pair.json
