# `make demo`: a real boot recorded, replayed, verified (tests/demo.sh).
demo: deps
	@$(MAKE) --no-print-directory -j$(JOBS) MODE=rel build/reprise build/images/linux/vmlinuz
	@tests/demo.sh

.PHONY: demo
