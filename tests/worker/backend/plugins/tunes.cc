// A backend that times nothing and has a kernel table: a row is the mode and samples of a program.
// In less than a second it does not come to those of evaluation. On device 1 programs of evaluation
// cannot be tuned, and say so after their row.
#include "worker/backend/plugin_entry.h"

namespace ringmaster {
namespace {

class TuningBackend final : public Backend {
 public:
  [[nodiscard]] v1::NumericsClass numerics_class(uint32_t) const override {
    v1::NumericsClass numerics;
    numerics.set_device_model("an abacus");
    return numerics;
  }
  [[nodiscard]] v1::DeviceProfile device_profile() const override { return {}; }
  StatusOr<std::unique_ptr<Weights>> MakeWeights(const graph::Program&) override {
    return Internal("an abacus has no weights");
  }
  StatusOr<std::unique_ptr<Core>> MakeCore(const CoreOptions&) override {
    return Internal("an abacus has no cores");
  }
  Status Tune(const graph::Program& program, const TuneOptions& options, KernelTable* table,
              const TuneReport& report) override {
    const bool training = program.mode == graph::Mode::kTraining;
    const bool narrow = options.gradient_bits == GradientBits::kMayBeRounded;
    const std::string shape = fmt::format("{} {}{}", training ? "training" : "evaluation",
                                          program.samples, narrow ? " narrow" : "");
    if (table->text.find(shape + "\n") != std::string::npos) return absl::OkStatus();
    if (options.seconds > 0 && options.seconds < 1 && !training) {
      report({.op = "add", .shape = shape, .untuned = 4});
      return absl::OkStatus();
    }
    table->text += shape + "\n";
    report({.op = "add",
            .shape = shape,
            .candidates = 2,
            .tried = 2,
            .row = true,
            .microseconds = 1.5,
            .untuned = 4});
    if (options.device == 0 || training) return absl::OkStatus();
    return Internal("{}: a bead is missing for {}", table->source, shape);
  }
};

}  // namespace
}  // namespace ringmaster

const char* ringmaster_backend_compute_id() { return "beads of wood"; }

ringmaster::Backend* ringmaster_make_backend(const ringmaster::BackendOptions&,
                                             ringmaster::Status*) {
  return new ringmaster::TuningBackend();
}
