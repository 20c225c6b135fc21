#include "worker/backend/plugin.h"

#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "worker/backend/abi_tag.h"
#include "worker/backend/plugin_entry.h"

namespace ringmaster {
namespace {

// A backend of a library: its kernels are one more thing that bits depend on.
class LoadedBackend final : public Backend {
 public:
  LoadedBackend(std::unique_ptr<Backend> backend, std::string library, std::string compute_id)
      : backend_(std::move(backend)),
        library_(std::move(library)),
        compute_id_(std::move(compute_id)) {}

  [[nodiscard]] v1::NumericsClass numerics_class(uint32_t threads_per_core) const override {
    v1::NumericsClass numerics = backend_->numerics_class(threads_per_core);
    (*numerics.mutable_libraries())[library_] = compute_id_;
    return numerics;
  }
  [[nodiscard]] v1::DeviceProfile device_profile() const override {
    return backend_->device_profile();
  }
  [[nodiscard]] uint32_t devices() const override { return backend_->devices(); }
  [[nodiscard]] std::vector<v1::DeviceFigures> figures() override { return backend_->figures(); }
  [[nodiscard]] bool augments() const override { return backend_->augments(); }
  [[nodiscard]] bool pads() const override { return backend_->pads(); }
  [[nodiscard]] bool exclusive() const override { return backend_->exclusive(); }
  [[nodiscard]] Status lost() const override { return backend_->lost(); }
  void KeepIn(const std::string& folder) override { backend_->KeepIn(folder); }
  StatusOr<std::unique_ptr<InputStage>> MakeInputStage(const InputStageOptions& options) override {
    return backend_->MakeInputStage(options);
  }
  StatusOr<std::unique_ptr<Weights>> MakeWeights(const graph::Program& training) override {
    return backend_->MakeWeights(training);
  }
  StatusOr<std::unique_ptr<Core>> MakeCore(const CoreOptions& options) override {
    return backend_->MakeCore(options);
  }
  Status Tune(const graph::Program& program, const TuneOptions& options, KernelTable* table,
              const TuneReport& report) override {
    return backend_->Tune(program, options, table, report);
  }

 private:
  const std::unique_ptr<Backend> backend_;
  const std::string library_;
  const std::string compute_id_;
};

std::string LoaderError() {
  const char* const text = dlerror();
  return text == nullptr ? "the loader says nothing" : text;
}

// nullptr when the library has no such function.
template <typename Function>
Function* Find(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

StatusOr<std::unique_ptr<Backend>> Load(const std::string& path, const BackendOptions& options) {
  // All symbols now: what is missing must be said here, and not abort in the middle of a step.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    return FailedPrecondition(
        "{} cannot be loaded: {}; what it needs must be where the loader looks (LD_LIBRARY_PATH): "
        "docs/gpu.md",
        path, LoaderError());
  }
  const auto abi = Find<decltype(ringmaster_backend_abi)>(library, "ringmaster_backend_abi");
  const auto compute_id =
      Find<decltype(ringmaster_backend_compute_id)>(library, "ringmaster_backend_compute_id");
  const auto make = Find<decltype(ringmaster_make_backend)>(library, "ringmaster_make_backend");
  if (abi == nullptr || compute_id == nullptr || make == nullptr) {
    return FailedPrecondition("{} is not a backend of ringworker: it has no function {}", path,
                              abi == nullptr          ? "ringmaster_backend_abi"
                              : compute_id == nullptr ? "ringmaster_backend_compute_id"
                                                      : "ringmaster_make_backend");
  }
  if (std::string(abi()) != kBackendAbi) {
    return FailedPrecondition(
        "{} belongs to another build (interface {:.12}, this program has {:.12}); install both "
        "from "
        "one build",
        path, abi(), kBackendAbi);
  }
  Status status;
  std::unique_ptr<Backend> backend(make(options, &status));
  if (!status.ok()) return status;
  if (backend == nullptr) return Internal("{} made no backend, and does not say why", path);
  return std::make_unique<LoadedBackend>(
      std::move(backend), std::filesystem::path(path).filename().string(), compute_id());
}

}  // namespace

std::vector<std::string> PluginPaths(const std::string& kind) {
  std::string variable = "RINGMASTER_" + kind + "_LIBRARY";
  std::transform(variable.begin(), variable.end(), variable.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  if (const char* const named = std::getenv(variable.c_str())) return {named};
  std::error_code error;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  const std::string file = "libringmaster_" + kind + ".so";
  return {(folder / file).string(), (folder.parent_path() / "lib" / "ringmaster" / file).string()};
}

StatusOr<std::unique_ptr<Backend>> LoadBackend(const std::vector<std::string>& paths,
                                               const BackendOptions& options) {
  for (const std::string& path : paths) {
    std::error_code error;
    if (std::filesystem::exists(path, error)) return Load(path, options);
  }
  return Error(absl::StatusCode::kNotFound, "there is no {}", fmt::join(paths, " and no "));
}

}  // namespace ringmaster
