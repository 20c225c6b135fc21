#include "worker/script/zygote.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <spdlog/spdlog.h>

#include "common/amount.h"

namespace ringmaster::script {
namespace {

using std::chrono::steady_clock;

// Of a process that is up: for a fork, and to say how a child ended.
constexpr std::chrono::seconds kAnswerTime{60};
constexpr size_t kMostFates = 1'000;     // that are kept, the newest
constexpr uint32_t kMostKills = 5;       // of one that is not up yet
constexpr uint32_t kLinesASecond = 200;  // of one child
constexpr int kLookAgain = 60'000;       // ms

constexpr const char* kGone = "is gone: the process that it was a fork of ended";

struct ForkCall {
  uint32_t core;
};

template <typename T>
std::optional<T> As(const std::string& body) {
  T value{};
  if (body.size() != sizeof(T)) return std::nullopt;
  std::memcpy(&value, body.data(), sizeof(T));
  return value;
}

}  // namespace

class Zygote::Output {
 public:
  Output(uint32_t core, OwnedFile file, const ZygoteOptions* options)
      : core_(core), file_(std::move(file)), options_(options) {}
  [[nodiscard]] int file() const { return file_.get(); }
  // False: nobody writes to it any more.
  [[nodiscard]] bool Read() {
    const bool more = lines_.Read(file_.get());
    if (!more) SayLeftOut();
    return more;
  }

 private:
  void Take(const std::string& line) {
    const auto now = steady_clock::now();
    if (now - second_ >= std::chrono::seconds(1)) {
      SayLeftOut();
      second_ = now;
      lines_of_second_ = 0;
    }
    if (++lines_of_second_ <= kLinesASecond) {
      Print(line);
    } else {
      ++left_out_;
    }
  }
  void SayLeftOut() {
    if (left_out_ == 0) return;
    Print(fmt::format("... {} more lines, of which there were too many at once", left_out_));
    left_out_ = 0;
  }
  void Print(const std::string& line) const {
    if (options_->print) options_->print(core_, line);
  }

  const uint32_t core_;
  const OwnedFile file_;
  const ZygoteOptions* const options_;
  steady_clock::time_point second_;
  uint32_t lines_of_second_ = 0;
  uint64_t left_out_ = 0;
  PipeLines lines_{[this](const std::string& line) { Take(line); }};
};

Zygote::Zygote(ZygoteOptions options)
    : options_(std::move(options)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

StatusOr<std::unique_ptr<Zygote>> Zygote::Create(ZygoteOptions options,
                                                 const std::stop_token& stop) {
  std::unique_ptr<Zygote> zygote(new Zygote(std::move(options)));
  if (zygote->wake_.get() < 0) {
    return Error(absl::StatusCode::kResourceExhausted, "cannot make an event: {}",
                 std::strerror(errno));
  }
  zygote->thread_ = std::jthread([self = zygote.get()] { self->Loop(); });
  pthread_setname_np(zygote->thread_.native_handle(), "script");
  MutexLock lock(zygote->fork_mu_);
  RING_RETURN_IF_ERROR(zygote->EnsureProcess(stop).status());
  return zygote;
}

Zygote::~Zygote() {
  std::shared_ptr<Subprocess> process;
  {
    MutexLock lock(fork_mu_);
    process = std::move(process_);
  }
  if (process != nullptr) shutdown(process->control(), SHUT_RDWR);  // children end with it
  {
    MutexLock lock(mu_);
    ending_ = true;
  }
  Wake();
}

void Zygote::Wake() const {
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof(one));  // which only a full counter refuses
}

StatusOr<std::shared_ptr<Subprocess>> Zygote::StartProcess(const std::stop_token& stop) const {
  std::vector<std::string> command = {options_.python, "-m", "ringmaster.zygote", options_.script};
  command.insert(command.end(), options_.arguments.begin(), options_.arguments.end());
  RING_ASSIGN_OR_RETURN(const auto process, Subprocess::Start({.called = "the script's interpreter",
                                                               .thread = "script-zygote",
                                                               .log = "script",
                                                               .command = std::move(command),
                                                               .environment = options_.environment,
                                                               .control_type = SOCK_SEQPACKET}));
  const std::stop_callback end(stop, [&] { process->Kill(JobEnds()); });
  auto up = Receive(process->control(), steady_clock::now() + options_.up_limit);
  if (absl::IsUnavailable(up.status())) {
    const Status fate = process->Fate();
    if (absl::IsCancelled(fate)) return fate;
    if (process->killed()) return fate;
    return FailedPrecondition("{} cannot run scripts: {}", options_.python, Message(fate));
  }
  if (absl::IsDeadlineExceeded(up.status())) {
    process->Kill(Error(absl::StatusCode::kDeadlineExceeded,
                        "{} did not import torch and ringmaster within {}", options_.python,
                        ExactDuration(options_.up_limit)));
    return process->Fate();
  }
  RING_RETURN_IF_ERROR(Annotate(up.status(), options_.python));
  v1::ScriptInterpreter interpreter;
  RING_RETURN_IF_ERROR(Annotate(TakeJson(&*up, &interpreter), options_.python));
  if (interpreter.error().empty()) return process;
  return FailedPrecondition("{}", interpreter.error());
}

StatusOr<std::shared_ptr<Subprocess>> Zygote::EnsureProcess(const std::stop_token& stop) {
  const auto over = [this] {
    MutexLock lock(mu_);
    return followed_ && followed_->over;
  };
  if (process_ != nullptr && !process_->doomed() && !over()) return process_;
  if (process_ != nullptr) {
    spdlog::warn("{}; it is started again", Message(process_->Fate()));
    process_ = nullptr;
  }
  StatusOr<std::shared_ptr<Subprocess>> started = StartProcess(stop);
  for (uint32_t kills = 1; absl::IsUnavailable(started.status()) && kills < kMostKills; ++kills) {
    spdlog::warn("{}; it is started again", Message(started.status()));
    started = StartProcess(stop);
  }
  RING_ASSIGN_OR_RETURN(process_, std::move(started));
  MutexLock lock(mu_);
  followed_ = Followed{process_};
  forked_.reset();
  forks_ = answers_ = 0;
  Wake();
  return process_;
}

StatusOr<std::unique_ptr<Child>> Zygote::Fork(uint32_t core, const std::stop_token& stop,
                                              bool* killed) {
  std::array<int, 2> ends = {}, pipe_ends = {};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return Error(absl::StatusCode::kResourceExhausted, "cannot make a socket: {}",
                 std::strerror(errno));
  }
  OwnedFile ours(ends[0]);
  const OwnedFile theirs(ends[1]);
  if (pipe2(pipe_ends.data(), O_CLOEXEC) != 0) {
    return Error(absl::StatusCode::kResourceExhausted, "cannot make a pipe: {}",
                 std::strerror(errno));
  }
  OwnedFile printed(pipe_ends[0]);
  const OwnedFile written(pipe_ends[1]);
  fcntl(printed.get(), F_SETFL, O_NONBLOCK);

  MutexLock one_fork(fork_mu_);
  RING_ASSIGN_OR_RETURN(const std::shared_ptr<Subprocess> process, EnsureProcess(stop));
  {
    MutexLock lock(mu_);
    forked_.reset();
    ++forks_;
  }
  const ForkCall call = {core};
  const std::array<int, 2> files = {theirs.get(), written.get()};
  const Deadline limit = steady_clock::now() + kAnswerTime;
  const Status sent = Send(process->control(), PacketKind::kFork,
                           {reinterpret_cast<const char*>(&call), sizeof(call)}, files, limit);
  if (absl::IsUnavailable(sent)) {
    *killed = process->killed();
    return process->Fate();
  }
  if (!sent.ok()) {
    MutexLock lock(mu_);
    --forks_;
    return Annotate(sent, "the script's interpreter");
  }
  std::optional<Forked> forked;
  {
    MutexLock lock(mu_);
    const auto answered = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return forked_.has_value() || followed_->over;
    };
    if (!changed_.WaitUntil(mu_, limit, answered)) {
      return Error(absl::StatusCode::kUnavailable,
                   "the script's interpreter did not fork a child for core {} within {}", core,
                   ExactDuration(kAnswerTime));
    }
    forked = forked_;
  }
  if (!forked || forked->core != core) {
    *killed = process->killed();
    return Error(absl::StatusCode::kUnavailable,
                 "the script's interpreter ended while it forked a child for core {}", core);
  }
  const pid_t id = forked->id;
  if (id < 0) {
    return Error(absl::StatusCode::kResourceExhausted, "cannot fork a child for core {}: {}", core,
                 std::strerror(-id));
  }
  OwnedFile handle(static_cast<int>(syscall(SYS_pidfd_open, id, 0)));
  if (!handle.valid() && errno != ESRCH) {
    return Error(absl::StatusCode::kResourceExhausted, "cannot watch a child for core {}: {}", core,
                 std::strerror(errno));
  }
  {
    MutexLock lock(mu_);
    fresh_.push_back(std::make_unique<Output>(core, std::move(printed), &options_));
  }
  Wake();
  return std::make_unique<Child>(
      std::move(ours),
      ChildProcess{
          .called = fmt::format("core{} (process {})", core, id),
          .handle = std::move(handle),
          .fate = [this, id, parent = std::weak_ptr(process)] { return FateOf(id, parent); },
          .stack_limit = options_.stack_limit});
}

StatusOr<StartedChild> Zygote::Start(const v1::ScriptHello& hello,
                                     std::chrono::milliseconds patience,
                                     const std::stop_token& stop) {
  for (uint32_t kills = 1;; ++kills) {
    bool killed = false;
    StatusOr<StartedChild> started = StartOnce(hello, patience, stop, &killed);
    if (!killed || kills == kMostKills || stop.stop_requested()) return started;
    spdlog::warn("{}; another one is started", Message(started.status()));
  }
}

StatusOr<StartedChild> Zygote::StartOnce(const v1::ScriptHello& hello,
                                         std::chrono::milliseconds patience,
                                         const std::stop_token& stop, bool* killed) {
  if (stop.stop_requested()) return JobEnds();
  StartedChild started;
  RING_ASSIGN_OR_RETURN(started.child, Fork(hello.core(), stop, killed));
  const std::stop_callback end(stop, [child = started.child.get()] { child->Interrupt(); });
  StatusOr<Attached> attached = started.child->Attach(hello, steady_clock::now() + patience);
  *killed = !attached.ok() && started.child->killed();
  if (stop.stop_requested()) return JobEnds();
  if (absl::IsDeadlineExceeded(attached.status())) {
    started.child->Kill();
    return Error(absl::StatusCode::kDeadlineExceeded,
                 "{} did not come to ringmaster.torch.attach in time and was ended; where it was "
                 "stands in the log",
                 started.child->called());
  }
  RING_RETURN_IF_ERROR(attached.status());
  started.attached = *std::move(attached);
  return started;
}

Fate Zygote::FateOf(pid_t id, const std::weak_ptr<Subprocess>& parent) {
  MutexLock lock(mu_);
  const auto find = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return std::ranges::find(ended_, id, &std::pair<pid_t, int>::first);
  };
  const auto gone = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return followed_->over || followed_->process.owner_before(parent) ||
           parent.owner_before(followed_->process);
  };
  const auto known = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return find() != ended_.end() || gone();
  };
  changed_.WaitUntil(mu_, steady_clock::now() + kAnswerTime, known);
  const auto at = find();
  if (at == ended_.end()) {
    return gone() ? Fate{kGone, true}
                  : Fate{"has ended, and the process that it was a fork of does not say how"};
  }
  const int status = at->second;
  ended_.erase(at);
  const bool killed = WasKilled(status);
  return {DescribeExit(status) + (killed ? ": by somebody, or because memory ran out" : ""),
          killed};
}

bool Zygote::Hear(const Subprocess& process) {
  auto packet = Receive(process.control(), steady_clock::now());
  if (absl::IsDeadlineExceeded(packet.status())) return true;
  if (!packet.ok()) return false;
  struct ExitedWords {
    uint32_t core;
    int32_t id, status;
  };
  MutexLock lock(mu_);
  if (packet->kind == PacketKind::kForked) {
    // Answers come in order; nobody waits for that of a FORK whose time was over, and its child
    // finds its lane closed.
    const auto forked = As<Forked>(packet->body);
    if (forked && ++answers_ == forks_) forked_ = *forked;
  } else if (packet->kind == PacketKind::kExited) {
    if (const auto exited = As<ExitedWords>(packet->body)) {
      std::erase_if(ended_, [&](const auto& fate) { return fate.first == exited->id; });
      ended_.emplace_back(exited->id, exited->status);
    }
    if (ended_.size() > kMostFates) ended_.pop_front();
  }
  changed_.NotifyAll();
  return true;
}

void Zygote::Loop() {
  std::vector<std::unique_ptr<Output>> outputs;
  for (;;) {
    std::shared_ptr<Subprocess> process;
    {
      MutexLock lock(mu_);
      for (std::unique_ptr<Output>& fresh : fresh_) outputs.push_back(std::move(fresh));
      fresh_.clear();
      if (followed_ && !followed_->over) process = followed_->process;
      if (ending_ && process == nullptr) break;
    }
    std::vector<pollfd> files = {{wake_.get(), POLLIN, 0},
                                 {process != nullptr ? process->control() : -1, POLLIN, 0}};
    for (const auto& output : outputs) files.push_back({output->file(), POLLIN, 0});
    if (poll(files.data(), files.size(), kLookAgain) < 0 && errno != EINTR) return;
    if (files[0].revents != 0) {
      uint64_t count = 0;
      (void)!read(wake_.get(), &count, sizeof(count));
    }
    // What a child said last comes before how it ended.
    for (size_t i = outputs.size(); i-- > 0;) {
      if (files[i + 2].revents != 0 && !outputs[i]->Read()) {
        outputs.erase(outputs.begin() + static_cast<ptrdiff_t>(i));
      }
    }
    if (files[1].revents != 0 && !Hear(*process)) {
      MutexLock lock(mu_);
      if (followed_->process == process) followed_->over = true;
      changed_.NotifyAll();
    }
  }
  // What is there yet: where one hung that was ended before all of them.
  for (const auto& output : outputs) (void)output->Read();
}

}  // namespace ringmaster::script
