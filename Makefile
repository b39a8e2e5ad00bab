# What there is to do with ringfence's source. Each target works by itself on a fresh Debian with
# only Rust, git and make: what else it needs, it installs by apt (as root, or where sudo asks for
# no password), or it says what is missing.
#
# CARGO_TARGET_DIR is honoured. RINGFENCE=PATH makes demo, escape and bench use a binary that is
# there already.

PREFIX ?= /usr/local
DESTDIR ?=

.PHONY: help demo test escape nested bench build fmt lint docs fuzz deny install uninstall

help:
	@echo 'make demo      build, then run real commands in a sandbox: what is allowed, what is refused'
	@echo 'make test      every test: format, clippy, cargo test, the escape corpus, the docs'
	@echo 'make escape    only the escape corpus        (ESCAPE="--only net --tier namespace")'
	@echo 'make nested    a virtual machine behind KVM, inside one whose processor is emulated'
	@echo 'make bench     measure, beside bubblewrap    (BENCH="start --quick")'
	@echo 'make build     the release binary; prints its path'
	@echo 'make fmt       format the Rust files'
	@echo 'make lint      clippy, warnings denied'
	@echo 'make docs      check links, commands and keys in the documents'
	@echo 'make fuzz      check that the fuzz targets compile (they are run by cargo-fuzz)'
	@echo 'make deny      licences and advisories of the dependencies (installs cargo-deny)'
	@echo 'make install   into PREFIX=$(PREFIX), below DESTDIR'

demo:
	@scripts/demo

test:
	@scripts/test

escape:
	@scripts/escape $(ESCAPE)

nested:
	@scripts/need cargo linker qemu certificates
	@scripts/nested

bench:
	@scripts/bench $(BENCH)

build:
	@scripts/need cargo linker certificates
	@scripts/build

fmt:
	@scripts/need cargo fmt
	cargo fmt --all

lint:
	@scripts/need cargo clippy linker certificates
	cargo clippy --workspace --all-targets -- -D warnings

docs:
	@scripts/need cargo linker python certificates
	@RINGFENCE="$$(scripts/build)" scripts/check_docs.py

fuzz:
	@scripts/need cargo linker certificates
	@scripts/fuzz

deny:
	@scripts/need cargo linker certificates
	@command -v cargo-deny >/dev/null || cargo install --locked cargo-deny
	cargo deny check

install:
	@PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' scripts/install

uninstall:
	@PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' scripts/install --remove
