# Guest images, from Debian packages: images/README.md. Built once; `make images-clean` to resolve the
# packages anew.
IMAGES := linux generic
IMAGE_FILES := vmlinuz initrd config version
IMAGE_COMMON := images/common.sh images/linux/init images/linux/debug-exit.c

define image_rule
$(IMAGE_FILES:%=build/images/$(1)/%) &: images/$(1)/build.sh $(IMAGE_COMMON) | deps
	@images/$(1)/build.sh
endef
$(foreach i,$(IMAGES),$(eval $(call image_rule,$(i))))

# The generic image's kernel and modules with other programs.
GPU_RAW_FILES := vmlinuz initrd gpu-raw version
$(GPU_RAW_FILES:%=build/images/gpu-raw/%) &: images/common.sh $(wildcard images/gpu-raw/*) \
		tests/tools/virgl_words.h build/images/generic/initrd | deps
	@images/gpu-raw/build.sh
image-gpu-raw: build/images/gpu-raw/initrd

# Not made by `make images`: a minute, 150 MB from the network, 600 MB on the disk.
DEBIAN_FILES := disk.img vmlinuz initrd id_ed25519 version
$(DEBIAN_FILES:%=build/images/debian/%) &: images/common.sh images/debian/build.sh \
		images/debian/configure.sh $(shell find images/debian/files -type f) | deps
	@images/debian/build.sh
image-debian: build/images/debian/disk.img

# For `make test`: where it cannot be made (no user namespaces, no network), its tests are skipped.
image-debian-if-possible:
	@$(MAKE) --no-print-directory image-debian || \
		echo "images: debian cannot be made on this machine: its tests will be skipped"

images: $(IMAGES:%=build/images/%/vmlinuz) image-gpu-raw

images-clean:
	rm -rf $(addprefix build/images/,linux generic debian gpu-raw)

.PHONY: images image-gpu-raw image-debian image-debian-if-possible images-clean
