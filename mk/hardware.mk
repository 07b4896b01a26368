# The KVM engine's counter, and what only real hardware can prove of it: docs/doctor.md. Where
# something is missing it says what, and skips that.
check-hardware: deps-all
	@$(MAKE) --no-print-directory -j$(JOBS) test-build images
	@tests/hardware.py --mode $(MODE)

# tests/unit: a host that misbehaves, and what doctor concludes.
$(B)/tests/unit/test_pmu: $(B)/tests/unit/pmu_fake.o
$(B)/tests/unit/test_doctor: $(B)/vmm/cmd/doctor_verdict.o

HARDWARE_OBJ := $(B)/tests/unit/pmu_fake.o
-include $(HARDWARE_OBJ:.o=.d)
.SECONDARY: $(HARDWARE_OBJ)
.PHONY: check-hardware
