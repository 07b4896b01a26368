# Guest images, from Debian packages: images/README.md. Built once; `make images-clean` to resolve the
# packages anew.
# R=trixie: of packages of that release of Debian's, not of this machine's (`make images-clean images R=trixie`: make
# does not know which one images are of).
export IMAGES_RELEASE := $(R)
IMAGES := linux generic
# Their packages: images/table.
deps-for-%:
	@images/deps.sh $$(images/image.sh --groups $*)

IMAGE_FILES := vmlinuz initrd config version
IMAGE_COMMON := images/common.sh images/linux/init images/linux/debug-exit.c

define image_rule
$(IMAGE_FILES:%=build/images/$(1)/%) &: images/$(1)/build.sh $(IMAGE_COMMON) | deps-for-$(1)
	@images/$(1)/build.sh
endef
$(foreach i,$(IMAGES),$(eval $(call image_rule,$(i))))

# The generic image's kernel and modules with other programs.
GPU_RAW_FILES := vmlinuz initrd gpu-raw version
$(GPU_RAW_FILES:%=build/images/gpu-raw/%) &: images/common.sh $(wildcard images/gpu-raw/*) \
		tests/tools/virgl_words.h build/images/generic/initrd | deps-for-gpu-raw
	@images/gpu-raw/build.sh
image-gpu-raw: build/images/gpu-raw/initrd

# What `reprise run` runs programs in.
RUN_FILES := vmlinuz initrd version
$(RUN_FILES:%=build/images/run/%) &: images/common.sh images/run/build.sh $(AGENT_FILES) \
		build/images/generic/initrd | deps-for-run
	@images/run/build.sh
image-run: build/images/run/initrd

# The module for guests without a TSC of their own, for the generic image's kernel. 14 MB from the network.
GENERIC_TSC_FILES := vmlinuz initrd reprise_tsc.ko tsc-test version
$(GENERIC_TSC_FILES:%=build/images/generic-tsc/%) &: images/common.sh $(wildcard images/generic-tsc/*) \
		$(wildcard guest-agent/tsc/*.[ch] guest-agent/tsc/Kbuild) $(wildcard tests/guest/module/*) \
		build/images/generic/initrd | deps-for-generic-tsc
	@images/generic-tsc/build.sh
image-tsc: build/images/generic-tsc/initrd

# 9p beside virtiofs, for `bench.py --part share`. 70 MB from the network: made only when asked for.
GENERIC_9P_FILES := vmlinuz initrd version
$(GENERIC_9P_FILES:%=build/images/generic-9p/%) &: images/common.sh images/generic-9p/build.sh \
		build/images/generic/initrd | deps-for-generic-9p
	@images/generic-9p/build.sh
image-9p: build/images/generic-9p/initrd

# Not made by `make images`: a minute, 150 MB from the network, 600 MB on the disk.
DISK_COMMON := images/common.sh images/disk.sh
DEBIAN_FILES := disk.img vmlinuz initrd id_ed25519 version
$(DEBIAN_FILES:%=build/images/debian/%) &: $(DISK_COMMON) images/debian/build.sh \
		images/debian/configure.sh $(shell find images/debian/files guest-agent/debian -type f) \
		$(AGENT_FILES) | deps-for-debian
	@images/debian/build.sh
image-debian: build/images/debian/disk.img

# Half a minute, 62 MB from the network, 270 MB on the disk.
GPU_MESA_FILES := disk.img vmlinuz initrd version
$(GPU_MESA_FILES:%=build/images/gpu-mesa/%) &: $(DISK_COMMON) $(wildcard images/gpu-mesa/*) \
		$(wildcard images/gpu-raw/card.* images/gpu-raw/options.* images/gpu-raw/picture.*) \
		build/images/generic/initrd | deps-for-gpu-mesa
	@images/gpu-mesa/build.sh
image-gpu-mesa: build/images/gpu-mesa/disk.img

# As long, 88 MB from the network, 500 MB on the disk.
GPU_DESKTOP_FILES := disk.img vmlinuz initrd version
$(GPU_DESKTOP_FILES:%=build/images/gpu-desktop/%) &: $(DISK_COMMON) images/gpu-desktop/build.sh \
		images/gpu-mesa/gpu $(shell find images/gpu-desktop/files -type f) \
		build/images/generic/initrd | deps-for-gpu-desktop
	@images/gpu-desktop/build.sh
image-gpu-desktop: build/images/gpu-desktop/disk.img

# Real programs for `bench.py --part real`. Two minutes, 180 MB from the network, 1.3 GB on the disk: no test
# needs it, so it is made only when asked for.
PROGRAMS_FILES := disk.img version
$(PROGRAMS_FILES:%=build/images/programs/%) &: $(DISK_COMMON) images/programs/build.sh \
		$(filter-out %/enter,$(wildcard tests/bench/real/*)) | deps-for-programs
	@images/programs/build.sh
image-programs: build/images/programs/disk.img

# rr and perf, and programs for them. A minute, 60 MB from the network, 210 MB on the disk.
COUNTERS_FILES := disk.img version
$(COUNTERS_FILES:%=build/images/counters/%) &: $(DISK_COMMON) $(wildcard images/counters/*) | deps-for-counters
	@images/counters/build.sh
image-counters: build/images/counters/disk.img

# rr's own tests, compiled on their disk. Minutes, 260 MB from the network: made only when asked for, for soak.
RR_TESTS_FILES := disk.img version
$(RR_TESTS_FILES:%=build/images/rr-tests/%) &: $(DISK_COMMON) images/rr-tests/build.sh | deps-for-rr-tests
	@images/rr-tests/build.sh
image-rr-tests: build/images/rr-tests/disk.img

# Kernels of 32 bits, which Debian 12 has. Half a minute, 105 MB from the network.
build/images/linux-686/vmlinuz build/images/linux-686-pae/vmlinuz &: images/linux-686/build.sh $(IMAGE_COMMON) | deps-for-linux-686
	@images/linux-686/build.sh
image-686: build/images/linux-686-pae/vmlinuz

# Xen, iPXE, memtest86+. Seconds, 4 MB from the network.
KERNELS_FILES := xen ipxe memtest version
$(KERNELS_FILES:%=build/images/kernels/%) &: images/common.sh images/kernels/build.sh | deps-for-kernels
	@images/kernels/build.sh
image-kernels: build/images/kernels/xen

# A program with a race that is known, to be hunted for. Half a minute, 2 MB from the network: made only when asked for.
KNOWN_FILES := xz version
$(KNOWN_FILES:%=build/images/known/%) &: images/common.sh images/known/build.sh | deps-for-known
	@images/known/build.sh
image-known: build/images/known/xz

# Debian's programs of 32 bits, Wine and the kernel's x86 selftests. Four minutes, 310 MB from the network, 2.2 GB on
# the disk: made only when asked for.
I386_FILES := vmlinuz initrd disk.img version
$(I386_FILES:%=build/images/i386/%) &: $(DISK_COMMON) $(wildcard images/i386/*) build/images/generic/initrd | deps-for-i386
	@images/i386/build.sh
image-i386: build/images/i386/disk.img

# For `make test`: where one cannot be made (no user namespaces, no network), its tests are skipped.
define if_possible
image-$(1)-if-possible:
	@$$(MAKE) --no-print-directory image-$(1) || \
		echo "images: $(1) cannot be made on this machine: its tests will be skipped"
.PHONY: image-$(1) image-$(1)-if-possible
endef
DISK_IMAGES     := debian gpu-mesa gpu-desktop
OPTIONAL_IMAGES := $(DISK_IMAGES) tsc 686 counters kernels
$(foreach i,$(OPTIONAL_IMAGES),$(eval $(call if_possible,$(i))))
# Not while another make is at the generic image.
image-gpu-mesa-if-possible image-gpu-desktop-if-possible image-tsc-if-possible: images
images-if-possible: $(OPTIONAL_IMAGES:%=image-%-if-possible)

images: $(IMAGES:%=build/images/%/vmlinuz) image-gpu-raw image-run

images-clean:
	rm -rf $(addprefix build/images/,$(IMAGES) run gpu-raw generic-tsc generic-9p programs counters rr-tests kernels known i386 $(DISK_IMAGES))

.PHONY: images image-run image-gpu-raw image-9p image-programs image-known image-rr-tests images-if-possible images-clean
