# Everything a person needs. Each target says what it does; `make` alone lists them.

CARGO ?= cargo
TARGET ?= $(or $(CARGO_TARGET_DIR),target)
PREFIX ?= /usr/local
SBINDIR ?= /sbin
BASHDIR ?= $(PREFIX)/share/bash-completion/completions
ZSHDIR ?= $(PREFIX)/share/zsh/site-functions
FISHDIR ?= $(PREFIX)/share/fish/vendor_completions.d
LIBDIR ?= $(PREFIX)/lib
DESTDIR ?=
BINARY ?= $(TARGET)/release/extant
ARCHIVE ?= $(TARGET)/release/libextant_capi.a
IMAGE ?= extant.img
SIZE ?= 1G
MNT ?= mnt
MINUTES ?= 60
XFSTESTS ?=
SUITE ?=
FOLDER ?=
PACKAGES ?=
ON ?= extant
TESTS ?=
ON_MACHINES ?=
# What the compiler makes programs for, unless told otherwise.
HOST ?= $(shell rustc -vV | sed -n 's/^host: //p')
# Programs find a library once the linker's cache has it; only root may write that, and a tree below
# DESTDIR is another system's.
LDCONFIG = [ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || PATH="$$PATH:/usr/sbin:/sbin" ldconfig
BENCH ?= --full --json docs/figures/full.json

# What this make was called with is for no other one: that one would print the directories that it
# enters, to a program that reads its output (`make -C DIR test`).
unexport MAKEFLAGS MFLAGS

.PHONY: help run stop build test lint tidy doc soak fuzz sanitize machines deny bench clean
.PHONY: xfstests suites coverage
.PHONY: library install install-files install-library uninstall deb static dist book

help:
	@echo "make run              mount $(IMAGE) on ./$(MNT) (made if there is none); built soon,"
	@echo "                      and not as fast as what make install builds"
	@echo "make stop             unmount it again"
	@echo "make test             checks and all tests, under 15 minutes on two cores"
	@echo "make soak             the long suites for MINUTES=$(MINUTES)"
	@echo "make fuzz             the fuzz targets (FUZZ=walk: one of them) for MINUTES=$(MINUTES)"
	@echo "make sanitize         tests of threads and unsafe code under sanitizers (nightly compiler)"
	@echo "make coverage         lines and branches that the suites run (nightly compiler,"
	@echo "                      cargo-llvm-cov); PACKAGES='extant-jbd2 extant-fix' for some"
	@echo "make machines         suites and images on aarch64, riscv64 and s390x, under qemu-user;"
	@echo "                      ON_MACHINES=s390x for one of them"
	@echo "make xfstests         XFSTESTS=DIR (its sources, built): generic tests on a mount, as root;"
	@echo "                      ON=ext4 or ON=fuse2fs for comparison, TESTS='-g quick' for some"
	@echo "make suites           SUITE=sqlite or lmdb, FOLDER=DIR (where it was built): other"
	@echo "                      projects' suites on a mount, as root; ON and TESTS as above"
	@echo "make lint             format, clippy, rustdoc and the project's own rules"
	@echo "make doc              the library's documentation, in $(TARGET)/doc"
	@echo "make book             tutorials, how-to pages, reference and explanations as a site,"
	@echo "                      in $(TARGET)/book"
	@echo "make bench            the figures of docs/BENCHMARKS.md, in 45 minutes; BENCH=--quick"
	@echo "make library          libextant for C programs and fio's engines, in $(TARGET)/library"
	@echo "make install          command, library, manual pages, completions and mount helper,"
	@echo "                      below PREFIX=$(PREFIX)"
	@echo "make deb              packages for Debian, in $(TARGET)/deb"
	@echo "make static           one file that needs no libraries: $(TARGET)/static/extant"
	@echo "make dist             sources, static command, packages and their checksums,"
	@echo "                      in $(TARGET)/dist"
	@echo "make deny             licences and advisories of the dependencies"

run:
	@scripts/need run
	$(CARGO) build --profile quick -p extant-cli
	@scripts/run "$(TARGET)/quick/extant" "$(IMAGE)" "$(SIZE)" "$(MNT)"

stop:
	$(TARGET)/quick/extant umount "$(MNT)"

build:
	$(CARGO) build --release -p extant-cli

# Checks that take seconds come first; clippy compiles the tests, rustdoc runs beside them. State
# for a next build would cost an eighth of the processor time of this one.
test: export CARGO_INCREMENTAL ?= 0
test:
	@scripts/need test
	$(CARGO) xtask test --lint

soak:
	@scripts/need test
	$(CARGO) xtask soak $(MINUTES)

fuzz:
	@scripts/need test
	CARGO="$(CARGO)" scripts/fuzz "$(MINUTES)" $(FUZZ)

sanitize:
	CARGO="$(CARGO)" scripts/sanitize all

coverage:
	scripts/coverage $(PACKAGES)

machines:
	CARGO="$(CARGO)" scripts/machines $(ON_MACHINES)

xfstests:
	$(CARGO) build --profile quick -p extant-cli
	EXTANT="$(TARGET)/quick/extant" scripts/xfstests/run --on "$(ON)" \
	    --results "$(TARGET)/xfstests/$(ON)" "$(XFSTESTS)" $(TESTS)

suites:
	$(CARGO) build --profile quick -p extant-cli
	EXTANT="$(TARGET)/quick/extant" scripts/suites/run --on "$(ON)" \
	    --results "$(TARGET)/suites/$(ON)" "$(SUITE)" "$(FOLDER)" $(TESTS)

lint:
	$(CARGO) xtask lint

tidy:
	$(CARGO) xtask tidy

doc:
	$(CARGO) doc --workspace --no-deps

book:
	command -v mdbook >/dev/null || $(CARGO) install --locked mdbook
	$(CARGO) xtask book

deny:
	command -v cargo-deny >/dev/null || $(CARGO) install --locked cargo-deny
	$(CARGO) deny check

bench:
	@scripts/need bench
	$(CARGO) build --release -p extant-cli
	$(TARGET)/release/extant bench all $(BENCH)
	$(CARGO) xtask figures

install: build library install-files install-library

library:
	$(CARGO) build --release -p extant-capi
	scripts/libextant "$(ARCHIVE)" "$(TARGET)/library" "$(PREFIX)" "$(LIBDIR)"

# What is installed, from a BINARY that is there already.
install-files:
	install -D -m 755 "$(BINARY)" "$(DESTDIR)$(PREFIX)/bin/extant"
	install -d "$(DESTDIR)$(PREFIX)/lib/systemd/system"
	sed 's|/usr/bin/extant|$(PREFIX)/bin/extant|' scripts/systemd/extant@.service \
		>"$(DESTDIR)$(PREFIX)/lib/systemd/system/extant@.service"
	rm -rf "$(TARGET)/man" && "$(BINARY)" manual "$(TARGET)/man"
	install -d "$(DESTDIR)$(PREFIX)/share/man/man1" "$(DESTDIR)$(SBINDIR)"
	install -m 644 "$(TARGET)"/man/*.1 "$(DESTDIR)$(PREFIX)/share/man/man1"
	install -D -m 644 -t "$(DESTDIR)$(PREFIX)/share/man/man5" "$(TARGET)"/man/*.5
	install -d "$(DESTDIR)$(BASHDIR)" "$(DESTDIR)$(ZSHDIR)" "$(DESTDIR)$(FISHDIR)"
	"$(BINARY)" completions bash >"$(DESTDIR)$(BASHDIR)/extant"
	"$(BINARY)" completions zsh >"$(DESTDIR)$(ZSHDIR)/_extant"
	"$(BINARY)" completions fish >"$(DESTDIR)$(FISHDIR)/extant.fish"
	chmod 644 "$(DESTDIR)$(PREFIX)/lib/systemd/system/extant@.service" \
		"$(DESTDIR)$(BASHDIR)/extant" "$(DESTDIR)$(ZSHDIR)/_extant" \
		"$(DESTDIR)$(FISHDIR)/extant.fish"
	ln -sf "$(PREFIX)/bin/extant" "$(DESTDIR)$(SBINDIR)/mount.fuse.extant"
	ln -sf "$(PREFIX)/bin/extant" "$(DESTDIR)$(SBINDIR)/umount.fuse.extant"

# What `make library` made, with the header and the manual page.
install-library:
	install -d "$(DESTDIR)$(LIBDIR)/pkgconfig" "$(DESTDIR)$(PREFIX)/include"
	install -m 644 crates/capi/include/extant.h "$(DESTDIR)$(PREFIX)/include"
	install -m 644 "$(TARGET)/library/libextant.a" "$(DESTDIR)$(LIBDIR)"
	cp -P "$(TARGET)"/library/libextant.so* "$(DESTDIR)$(LIBDIR)"
	install -D -t "$(DESTDIR)$(LIBDIR)/extant" "$(TARGET)"/library/libextant-fio*.so
	strip --strip-unneeded "$(DESTDIR)$(LIBDIR)"/libextant.so.*.*.* \
		"$(DESTDIR)$(LIBDIR)"/extant/libextant-fio*.so
	strip --strip-debug --enable-deterministic-archives "$(DESTDIR)$(LIBDIR)/libextant.a"
	install -m 644 "$(TARGET)/library/extant.pc" "$(DESTDIR)$(LIBDIR)/pkgconfig"
	install -D -m 644 crates/capi/extant.3 "$(DESTDIR)$(PREFIX)/share/man/man3/extant.3"
	$(LDCONFIG)

uninstall:
	rm -f "$(DESTDIR)$(PREFIX)/include/extant.h" "$(DESTDIR)$(LIBDIR)/pkgconfig/extant.pc"
	rm -f "$(DESTDIR)$(LIBDIR)"/libextant.* "$(DESTDIR)$(LIBDIR)"/extant/libextant-fio*.so
	rm -f "$(DESTDIR)$(PREFIX)/share/man/man3/extant.3"
	rm -f "$(DESTDIR)$(PREFIX)/bin/extant" "$(DESTDIR)$(PREFIX)"/share/man/man1/extant.1
	rm -f "$(DESTDIR)$(PREFIX)"/share/man/man1/extant-*.1
	rm -f "$(DESTDIR)$(PREFIX)/share/man/man5/extant-options.5"
	rm -f "$(DESTDIR)$(BASHDIR)/extant" "$(DESTDIR)$(ZSHDIR)/_extant"
	rm -f "$(DESTDIR)$(FISHDIR)/extant.fish"
	rm -f "$(DESTDIR)$(SBINDIR)/mount.fuse.extant" "$(DESTDIR)$(SBINDIR)/umount.fuse.extant"
	rm -f "$(DESTDIR)$(PREFIX)/lib/systemd/system/extant@.service"
	$(LDCONFIG)

deb: build
	@scripts/need deb
	$(CARGO) build --release -p extant-capi
	rm -rf "$(TARGET)/deb"
	scripts/deb "$(BINARY)" "$(ARCHIVE)" "$(TARGET)/deb"

# With a target that is named, build scripts and macros stay as they are.
static:
	RUSTFLAGS="-C target-feature=+crt-static" \
	    $(CARGO) build --release -p extant-cli --target "$(HOST)"
	readelf -l "$(TARGET)/$(HOST)/release/extant" >"$(TARGET)/static-headers"
	! grep -q INTERP "$(TARGET)/static-headers"
	install -D -m 755 "$(TARGET)/$(HOST)/release/extant" "$(TARGET)/static/extant"

dist: deb static
	scripts/dist "$(TARGET)/static/extant" "$(TARGET)/deb" "$(TARGET)/dist"

clean:
	$(CARGO) clean
