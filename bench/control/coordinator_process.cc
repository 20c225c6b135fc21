#include "bench/control/coordinator_process.h"

#include <grpcpp/grpcpp.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <sstream>
#include <utility>

#include "bench/process_memory.h"

namespace ringmaster::bench {
namespace {

constexpr double kFirstWaitMs = 0.016;  // jobs.proto
constexpr int kEachOctave = 4;

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// utime and stime: fields 14 and 15 of proc(5), /proc/pid/stat.
double CpuSeconds(pid_t pid) {
  const std::string text = ReadAll(fmt::format("/proc/{}/stat", pid));
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 2));
  std::string skipped;
  for (int field = 3; field < 14; ++field) fields >> skipped;
  double user = 0, system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

// The upper end of the entry in which the event at position `q` lies.
double WaitAt(const std::vector<uint64_t>& counts, double q) {
  const uint64_t all = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  uint64_t seen = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    seen += counts[i];
    if (static_cast<double>(seen) >= q * static_cast<double>(all)) {
      return kFirstWaitMs * std::exp2(static_cast<double>(i + 1) / kEachOctave);
    }
  }
  return 0;
}

}  // namespace

CoordinatorCost CostBetween(const CoordinatorFigures& from, const CoordinatorFigures& to) {
  std::vector<uint64_t> waits = to.loop_waits;
  for (size_t i = 0; i < std::min(waits.size(), from.loop_waits.size()); ++i) {
    waits[i] -= from.loop_waits[i];
  }
  const double seconds = to.seconds - from.seconds;
  CoordinatorCost cost;
  cost.cores = (to.cpu_seconds - from.cpu_seconds) / seconds;
  cost.events = std::accumulate(waits.begin(), waits.end(), uint64_t{0});
  cost.events_per_second = static_cast<double>(cost.events) / seconds;
  cost.wait_p50_ms = WaitAt(waits, 0.5);
  cost.wait_p99_ms = WaitAt(waits, 0.99);
  cost.wait_most_ms = WaitAt(waits, 1);
  return cost;
}

CoordinatorProcess::CoordinatorProcess(std::string program) : program_(std::move(program)) {
  std::string name = (std::filesystem::temp_directory_path() / "control_speed.XXXXXX").string();
  if (mkdtemp(name.data()) != nullptr) folder_ = name;
}

CoordinatorProcess::~CoordinatorProcess() {
  Kill();
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

Status CoordinatorProcess::Start() {
  std::array<int, 2> out{};
  if (folder_.empty() || pipe(out.data()) != 0) return Internal("no folder, or no pipe");
  const std::string listen = address_.empty() ? "127.0.0.1:0" : address_;
  const std::string data = folder_ + "/data", log = folder_ + "/log";
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) {
    // It ends with this program, however that ends.
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) _exit(1);
    dup2(out[1], STDOUT_FILENO);
    if (FILE* const file = std::freopen(log.c_str(), "a", stderr); file == nullptr) _exit(1);
    execl(program_.c_str(), program_.c_str(), "--listen", listen.c_str(), "--data-dir",
          data.c_str(), "--max-connections-per-address", "100000", "--max-connections", "9000",
          nullptr);
    _exit(1);
  }
  close(out[1]);
  FILE* const lines = fdopen(out[0], "r");
  std::array<char, 256> line{};
  const bool said = std::fgets(line.data(), line.size(), lines) != nullptr;
  std::fclose(lines);
  const std::string text = said ? line.data() : "";
  const size_t at = text.rfind(' ');
  if (at == std::string::npos) {
    return Internal("{} did not start: {}", program_, ReadAll(log));
  }
  address_ = text.substr(at + 1, text.find('\n') - at - 1);
  jobs_ = NewJobs();
  return absl::OkStatus();
}

void CoordinatorProcess::Kill() {
  if (pid_ == 0) return;
  kill(pid_, SIGKILL);
  waitpid(std::exchange(pid_, 0), nullptr, 0);
}

std::unique_ptr<v1::Jobs::Stub> CoordinatorProcess::NewJobs() const {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(-1);
  return v1::Jobs::NewStub(
      grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), arguments));
}

StatusOr<CoordinatorFigures> CoordinatorProcess::Read() {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  context.set_wait_for_ready(true);
  v1::ListWorkersResponse workers;
  const grpc::Status status = jobs_->ListWorkers(&context, {}, &workers);
  if (!status.ok()) return Internal("ListWorkers: {}", status.error_message());
  const std::string process = ReadAll(fmt::format("/proc/{}/status", pid_));
  CoordinatorFigures figures;
  figures.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  figures.cpu_seconds = CpuSeconds(pid_);
  figures.resident = StatusBytes(process, "VmRSS").value_or(0);
  figures.peak = StatusBytes(process, "VmHWM").value_or(0);
  const auto& waits = workers.coordinator().loop_waits();
  figures.loop_waits.assign(waits.begin(), waits.end());
  return figures;
}

}  // namespace ringmaster::bench
