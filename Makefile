# The front door. Every recipe is one script; each script says at its top what it does.
# Variables: PG (one or more of 15 16 17 18), PG_CONFIG, BROKER, FLIGHTS, POSTROOM_CACHE.

S := tests/scripts
PG ?=

.DEFAULT_GOAL := help
.PHONY: help demo pairs test regress mutants regress-accept bench install installcheck package package-test setup freeze clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

demo: ## a running story on a throw-away server; BROKER=nats|none FLIGHTS=20000|all
	@$(S)/demo.sh

test: ## everything, on PostgreSQL 15 to 18; PG=17 for one of them
	@$(S)/test.sh $(PG)

pairs: ## what wake-ups and readers cost those who store, in turns; ONLY=readers PAIRS=15 CLIENTS=32 SYNC=on|off
	@$(S)/pairs.sh $(ONLY)

regress: ## golden tests and interleavings only; PG=17
	@$(S)/regress.sh $(or $(PG),17)

mutants: ## take out each guard and see its tests fail; PG=17 ONLY=name,name
	@ONLY=$(ONLY) $(S)/mutants.sh $(or $(PG),17)

regress-accept: ## the same, then their results become the expectation
	@$(S)/regress.sh $(or $(PG),17) accept

bench: ## beside pgmq and PGQ on Debian's Postgres 15, 40 minutes; writes docs/benchmark.md; ONLY=order,latency BENCH_SECONDS=2 BENCH_RUNS=1
	@$(S)/bench.sh

install: ## into your own server; PG_CONFIG=/usr/lib/postgresql/15/bin/pg_config
	@$(S)/install.sh $(PG_CONFIG)

installcheck: ## the golden tests on your own running server; PG_CONFIG=..., PGHOST, PGPORT, PGUSER
	@$(S)/installcheck.sh $(PG_CONFIG)

package: ## a Debian package per version, in target/package; PG=17 for one of them
	@$(S)/package.sh $(PG)

package-test: ## the package for 15 in a clean Debian 12, as root
	@$(S)/package-test.sh

setup: ## what the others need on this machine, without building or running anything
	@$(S)/setup.sh

freeze: ## write the install script of this version to sql/install/
	@$(S)/freeze.sh write

clean: ## remove the cache: Postgres trees, tools, build output
	@$(S)/clean.sh
