# Suppressed: checks that lose track of out-parameters and of unsigned char arithmetic.
# `make fmt` lays out the sources, `make lint` checks layout and runs cppcheck where it is installed.
FMT_FILES := $(shell git ls-files -co --exclude-standard '*.c' '*.h' 2>/dev/null | grep -v '^images/tiny/')

fmt:
	@clang-format -i $(FMT_FILES)

lint:
	@command -v clang-format >/dev/null || { echo "lint: clang-format is not installed"; exit 1; }
	@clang-format --dry-run -Werror $(FMT_FILES)
	@if command -v cppcheck >/dev/null; then \
		cppcheck -q --error-exitcode=1 --inline-suppr --enable=warning,portability \
			--suppress=uninitvar --suppress=nullPointerRedundantCheck \
			--suppress=ctuuninitvar --suppress=ctunullpointer \
			--suppress=integerOverflowCond --suppress=signConversionCond --std=c11 \
			-D__x86_64__ --include=/usr/include/libfdt.h -Ivmm -I. vmm inspect replay virtio-gpu-log; \
	else echo "lint: cppcheck is not installed: skipped"; fi

.PHONY: fmt lint
