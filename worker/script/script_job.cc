#include "worker/script/script_job.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <utility>
#include <vector>

#include <spdlog/spdlog.h>

#include "common/files.h"
#include "common/job/script_files.h"
#include "worker/backend/failure.h"

namespace ringmaster::script {
namespace {

constexpr const char* kDefaultInterpreter = "default";

// Of this process's environment: what programs and their libraries are found by, and what sets up
// those that compute. Secrets of the worker, of an object store above all, have other names.
constexpr std::array kKept = {"PATH",      "HOME",   "USER", "LOGNAME",         "LANG",
                              "TZ",        "TMPDIR", "TERM", "LD_LIBRARY_PATH", "VIRTUAL_ENV",
                              "PYTHONPATH"};
constexpr std::array kKeptPrefixes = {"LC_",      "CONDA_", "CUDA_",  "NVIDIA_", "OMP_",
                                      "OPENBLAS", "MKL_",   "ONEDNN", "DNNL_",   "ATEN_",
                                      "TORCH",    "KMP_",   "GOMP_"};

bool IsKept(const std::string& variable) {
  const std::string name = variable.substr(0, variable.find('='));
  return std::ranges::find(kKept, name) != kKept.end() ||
         std::ranges::any_of(kKeptPrefixes,
                             [&](const char* prefix) { return name.starts_with(prefix); });
}

Status WriteFiles(const v1::Script& script, const std::string& folder) {
  RING_RETURN_IF_ERROR(job::CheckScriptFiles(script));
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  for (const v1::ScriptFile& file : script.files()) {
    const std::filesystem::path path = std::filesystem::path(folder) / file.path();
    RING_RETURN_IF_ERROR(MakePrivateFolder(path.parent_path().string()));
    RING_RETURN_IF_ERROR(WriteDurably(path.string(), file.content()));
  }
  return absl::OkStatus();
}

StatusOr<std::string> InterpreterOf(const v1::Script& script, const ScriptJobOptions& options) {
  const std::string name = script.python().empty() ? kDefaultInterpreter : script.python();
  const auto found = options.interpreters.find(name);
  if (found != options.interpreters.end()) return found->second;
  return FailedPrecondition(
      "this worker has no Python interpreter of the name {}: start ringworker with --python "
      "{}=PATH",
      name, name);
}

}  // namespace

std::vector<std::string> ScriptEnvironment(
    const std::vector<std::string>& own, const std::string& package, uint32_t threads,
    const google::protobuf::RepeatedPtrField<v1::ScriptVariable>& of_job) {
  std::map<std::string, std::string> variables;
  const auto set = [&](const std::string& variable) {
    const size_t equals = variable.find('=');
    variables[variable.substr(0, equals)] = variable.substr(equals + 1);
  };
  for (const std::string& variable : own) {
    if (variable.find('=') != std::string::npos && IsKept(variable)) set(variable);
  }
  for (const char* const name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"}) {
    variables[name] = std::to_string(threads);
  }
  // Libraries choose nothing by what they see; MKL's bits do not depend on alignment.
  for (const char* const fixed :
       {"MKL_DYNAMIC=FALSE", "OMP_DYNAMIC=FALSE", "MKL_CBWR=AVX2,STRICT", "PYTHONHASHSEED=0",
        "PYTHONDONTWRITEBYTECODE=1", "CUBLAS_WORKSPACE_CONFIG=:4096:8",
        "TORCHINDUCTOR_DETERMINISTIC=1"}) {
    set(fixed);
  }
  // What a shard frees the next one takes: glibc gives nothing back to the kernel in between, whose
  // fresh pages cost a convolution's step a fifth of its time.
  for (const char* const keeps :
       {"MALLOC_TRIM_THRESHOLD_=4294967296", "MALLOC_MMAP_THRESHOLD_=1073741824"}) {
    set(keeps);
  }
  for (const v1::ScriptVariable& variable : of_job) variables[variable.name()] = variable.value();
  if (!package.empty()) {
    const std::string& others = variables["PYTHONPATH"];
    variables["PYTHONPATH"] = package + (others.empty() ? "" : ":" + others);
  }
  std::vector<std::string> all;
  for (const auto& [name, value] : variables) all.push_back(name + "=" + value);
  return all;
}

std::string FindPackage() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  std::vector<std::filesystem::path> places;
  if (const char* const named = std::getenv("RINGMASTER_PYTHON")) places.emplace_back(named);
  places.push_back(program.parent_path() / "lib" / "ringmaster" / "python");
  for (const std::filesystem::path& place : places) {
    if (std::filesystem::exists(place / "ringmaster" / "zygote.py", error)) return place.string();
  }
  return "";
}

StatusOr<StartedChild> FirstChild::Start(const v1::ScriptHello& hello,
                                         std::chrono::milliseconds patience,
                                         const std::stop_token& stop) {
  if (hello.core() == 0) {
    MutexLock lock(mu_);
    if (first_.child != nullptr) return std::move(first_);
  }
  if (others_ != nullptr) return others_->Start(hello, patience, stop);
  return FailedPrecondition("the script is over");
}

StatusOr<std::unique_ptr<ScriptJob>> ScriptJob::Open(const v1::Script& script,
                                                     const ScriptJobOptions& options,
                                                     const std::stop_token& stop) {
  RING_ASSIGN_OR_RETURN(const std::string python, InterpreterOf(script, options));
  std::unique_ptr<ScriptJob> job(new ScriptJob(options.folder));
  RING_RETURN_IF_ERROR(WriteFiles(script, options.folder));
  RING_ASSIGN_OR_RETURN(
      job->zygote_,
      Zygote::Create(
          {.python = python,
           .environment =
               ScriptEnvironment(OwnEnvironment(), options.package, options.threads, script.env()),
           .script = options.folder + "/" + script.file(),
           .arguments = {script.args().begin(), script.args().end()},
           .up_limit = options.attach_limit,
           .print = [](uint32_t core,
                       const std::string& line) { spdlog::info("core{}: {}", core, line); }},
          stop));
  v1::ScriptHello hello;
  hello.set_threads(options.threads);
  hello.set_deterministic(true);
  RING_ASSIGN_OR_RETURN(StartedChild first, job->zygote_->Start(hello, options.attach_limit, stop));
  job->facts_ = first.attached.facts;
  OwnedFile initial = std::move(first.attached.initial);
  job->children_ = std::make_unique<FirstChild>(std::move(first), job->zygote_.get());
  RING_ASSIGN_OR_RETURN(job->backend_,
                        ScriptBackend::Create({.facts = job->facts_,
                                               .numerics = options.numerics,
                                               .attach_limit = options.attach_limit,
                                               .shard_limit = options.shard_limit},
                                              std::move(initial), job->children_.get()));
  return job;
}

ScriptJob::~ScriptJob() {
  backend_.reset();
  children_.reset();
  zygote_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

}  // namespace ringmaster::script
