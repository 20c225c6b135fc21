#include "worker/backend/cuda/libraries/plan_cache.h"

#include <pthread.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "common/files.h"
#include "common/mutex.h"
#include "common/sha256.h"
#include "worker/backend/core_thread.h"
#include "worker/backend/cuda/device/device.h"
#include "worker/backend/cuda/device/runtime.h"

namespace ringmaster::cuda {
namespace {

constexpr char kFirstLine[] = "ringmaster plans 1";

// A line up to its end, or `size` bytes and the end of a line, from the beginning of `rest`.
StatusOr<std::string> TakeLine(std::string_view* rest) {
  const size_t end = rest->find('\n');
  if (end == std::string_view::npos) return InvalidArgument("it ends within a line");
  std::string line(rest->substr(0, end));
  rest->remove_prefix(end + 1);
  return line;
}

StatusOr<std::string> TakeBytes(size_t size, std::string_view* rest) {
  if (rest->size() <= size || (*rest)[size] != '\n')
    return InvalidArgument("it ends within a plan");
  std::string bytes(rest->substr(0, size));
  rest->remove_prefix(size + 1);
  return bytes;
}

StatusOr<size_t> SizeOf(const std::string& line) {
  size_t size = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), size);
  if (error == std::errc() && end == line.data() + line.size()) return size;
  return InvalidArgument("`{}` is no size", line);
}

std::string Print(const std::string& key, const StoredPlan& plan) {
  return fmt::format("{}\n{}\n{}\n{}\n", key, ToString(PlanChoice(plan.choice)),
                     plan.written.size(), plan.written);
}

}  // namespace

std::unique_ptr<PlanStore> PlanStore::Open(std::string path, std::string identity,
                                           size_t most_bytes) {
  std::unique_ptr<PlanStore> store(new PlanStore(std::move(path), std::move(identity), most_bytes));
  std::error_code ignored;
  if (!std::filesystem::exists(store->path_, ignored)) return store;
  const auto rows = [&]() -> StatusOr<Rows> {
    RING_ASSIGN_OR_RETURN(const std::string text, ReadNamedFile("plans", store->path_));
    return store->Parse(text);
  }();
  if (!rows.ok()) {
    spdlog::info("plans of an earlier run are made anew: {}: {}", store->path_,
                 Message(rows.status()));
    return store;
  }
  const MutexLock lock(store->mu_);
  store->rows_ = *rows;
  return store;
}

StatusOr<PlanStore::Rows> PlanStore::Parse(const std::string& text) const {
  std::string_view rest = text;
  RING_ASSIGN_OR_RETURN(const std::string first, TakeLine(&rest));
  if (first != kFirstLine) return InvalidArgument("it does not begin with `{}`", kFirstLine);
  RING_ASSIGN_OR_RETURN(const std::string identity, TakeLine(&rest));
  if (identity != identity_) {
    return FailedPrecondition("they are of `{}`, this is `{}`", identity, identity_);
  }
  RING_ASSIGN_OR_RETURN(const std::string digest, TakeLine(&rest));
  if (digest != Hex(Sha256Of(std::string(rest)))) return InvalidArgument("it is damaged");
  Rows rows;
  while (!rest.empty()) {
    RING_ASSIGN_OR_RETURN(const std::string key, TakeLine(&rest));
    RING_ASSIGN_OR_RETURN(const std::string choice_line, TakeLine(&rest));
    RING_ASSIGN_OR_RETURN(const PlanChoice choice, ParseChoice(choice_line));
    const auto* const convolution = std::get_if<ConvolutionChoice>(&choice);
    if (convolution == nullptr) return InvalidArgument("`{}` is no convolution's", choice_line);
    RING_ASSIGN_OR_RETURN(const std::string size_line, TakeLine(&rest));
    RING_ASSIGN_OR_RETURN(const size_t size, SizeOf(size_line));
    RING_ASSIGN_OR_RETURN(std::string written, TakeBytes(size, &rest));
    rows[key] = {{*convolution, std::move(written)}, false};
  }
  return rows;
}

std::optional<StoredPlan> PlanStore::Find(const std::string& key) {
  const MutexLock lock(mu_);
  const auto found = rows_.find(key);
  if (found == rows_.end()) return std::nullopt;
  found->second.used = true;
  return found->second.plan;
}

void PlanStore::Put(const std::string& key, StoredPlan plan) {
  const MutexLock lock(mu_);
  rows_[key] = {std::move(plan), true};
  changed_ = true;
}

Status PlanStore::Save() {
  const MutexLock saving(saving_);  // else an older content might be the last
  std::string rows;
  {
    const MutexLock lock(mu_);
    if (!changed_) return absl::OkStatus();
    changed_ = false;
    size_t bytes = 0;
    for (const auto& [key, row] : rows_) bytes += Print(key, row.plan).size();
    if (bytes > most_bytes_) std::erase_if(rows_, [](const auto& row) { return !row.second.used; });
    for (const auto& [key, row] : rows_) {
      const std::string text = Print(key, row.plan);
      if (rows.size() + text.size() <= most_bytes_) rows += text;
    }
  }
  const Status written = WriteDurably(
      path_, fmt::format("{}\n{}\n{}\n{}", kFirstLine, identity_, Hex(Sha256Of(rows)), rows));
  if (!written.ok()) {
    const MutexLock lock(mu_);
    changed_ = true;
  }
  return written;
}

// Plans of one GPU.

namespace {

using Clock = std::chrono::steady_clock;

// Tells how far many threads have come, and not too often.
class Counter {
 public:
  Counter(size_t of, std::function<void(size_t, size_t)> tell) : of_(of), tell_(std::move(tell)) {}

  void Add() {
    const MutexLock lock(mu_);
    ++made_;
    const bool due = Clock::now() - told_ >= std::chrono::seconds(2);
    if (!tell_ || (!due && made_ < of_)) return;
    told_ = Clock::now();
    tell_(made_, of_);
  }

 private:
  const size_t of_;
  const std::function<void(size_t, size_t)> tell_;
  Mutex mu_;
  size_t made_ ABSL_GUARDED_BY(mu_) = 0;
  Clock::time_point told_ ABSL_GUARDED_BY(mu_) = Clock::now();
};

}  // namespace

PlanCache::Missing PlanCache::MissingOf(std::span<const PlanRequest> requests) {
  Missing missing;
  const MutexLock lock(mu_);
  for (const PlanRequest& request : requests) {
    std::string key = cuda::Key(request);
    if (!plans_.contains(key)) missing.emplace(std::move(key), &request);
  }
  return missing;
}

void PlanCache::Put(const std::string& key, StatusOr<ChosenConvolution> made) {
  if (!made.ok() && !absl::IsUnimplemented(made.status())) return;
  const auto plan = [&]() -> StatusOr<Plan> {
    RING_ASSIGN_OR_RETURN(ChosenConvolution chosen, std::move(made));
    return std::make_shared<const ChosenConvolution>(std::move(chosen));
  }();
  const MutexLock lock(mu_);
  plans_.insert({key, {plan, ++counts_}});
  DropIdle();
}

// Those that were used longest ago.
void PlanCache::DropIdle() {
  if (plans_.size() <= options_.most_idle) return;
  std::vector<std::pair<uint64_t, std::string>> idle;
  for (const auto& [key, kept] : plans_) {
    if (!kept.plan.ok() || kept.plan->use_count() == 1) idle.emplace_back(kept.used, key);
  }
  if (idle.size() <= options_.most_idle) return;
  std::ranges::sort(idle);
  // An eighth at once: this looks at all of them.
  const size_t drop = idle.size() - options_.most_idle + options_.most_idle / 8;
  for (size_t i = 0; i < std::min(drop, idle.size()); ++i) plans_.erase(idle[i].second);
}

std::optional<StatusOr<PlanCache::Plan>> PlanCache::Find(const std::string& key) {
  const MutexLock lock(mu_);
  const auto found = plans_.find(key);
  if (found == plans_.end()) return std::nullopt;
  found->second.used = ++counts_;
  return found->second.plan;
}

void PlanCache::Prepare(std::span<const PlanRequest> requests) {
  const MutexLock making(making_);
  const Missing missing = MissingOf(requests);
  if (missing.empty()) return;
  const std::vector<std::pair<std::string, const PlanRequest*>> work(missing.begin(),
                                                                     missing.end());
  Counter counter(work.size(), options_.progress);
  std::atomic<size_t> next = 0;
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < std::min(options_.threads, work.size()); ++i) {
    threads.emplace_back([&, i] {
      (void)pthread_setname_np(pthread_self(), fmt::format("plan{}", i).c_str());
      UnpinThread();
      for (size_t k = next++; k < work.size(); k = next++) {
        Put(work[k].first, options_.make(*work[k].second));
        counter.Add();
      }
    });
  }
}

StatusOr<PlanCache::Plan> PlanCache::Get(const PlanRequest& request) {
  const std::string key = cuda::Key(request);
  if (auto found = Find(key)) return *std::move(found);
  const MutexLock making(making_);
  if (auto found = Find(key)) return *std::move(found);
  StatusOr<ChosenConvolution> made = options_.make(request);
  const Status status = made.status();
  Put(key, std::move(made));
  auto found = Find(key);
  return found ? *std::move(found) : status;
}

// Those of this process.

namespace {

constexpr size_t kMostPlanningThreads = 16;

// Handles of one GPU, each used by one thread at a time. They stay: a plan may remember its own.
class Handles {
 public:
  StatusOr<cudnnHandle_t> Take() {
    {
      const MutexLock lock(mu_);
      if (!idle_.empty()) {
        const cudnnHandle_t handle = idle_.back();
        idle_.pop_back();
        return handle;
      }
    }
    cudnnHandle_t handle = nullptr;
    RING_RETURN_IF_ERROR(FromCudnn(cudnnCreate(&handle), "handle for plans"));
    return handle;
  }
  void Return(cudnnHandle_t handle) {
    const MutexLock lock(mu_);
    idle_.push_back(handle);
  }

 private:
  Mutex mu_;
  std::vector<cudnnHandle_t> idle_ ABSL_GUARDED_BY(mu_);
};

// Of each GPU by its index; what is in it is never destroyed.
template <typename T>
struct EachGpu {
  Mutex mu;
  std::map<int, T> of ABSL_GUARDED_BY(mu);
};

Handles& HandlesFor(int gpu) {
  static auto* const handles = new EachGpu<Handles>;
  const MutexLock lock(handles->mu);
  return handles->of[gpu];
}

// With a handle of the GPU, which becomes current.
StatusOr<ChosenConvolution> WithHandle(
    const DeviceFacts& facts,
    const std::function<StatusOr<ChosenConvolution>(const CudnnTarget&)>& make) {
  RING_RETURN_IF_ERROR(FromCuda(cudaSetDevice(facts.index), "GPU for plans"));
  Handles& handles = HandlesFor(facts.index);
  RING_ASSIGN_OR_RETURN(const cudnnHandle_t handle, handles.Take());
  auto chosen = make({.handle = handle});
  handles.Return(handle);
  return chosen;
}

// Of this process; set before there are threads that read it.
std::unique_ptr<PlanStore>& Kept() {
  static auto* const store = new std::unique_ptr<PlanStore>;
  return *store;
}

StatusOr<ChosenConvolution> RestoreOrMake(const DeviceFacts& facts, const PlanRequest& request) {
  PlanStore* const kept = Kept().get();
  if (kept == nullptr) return MakePlan(facts, request);
  const std::string key = Key(request);
  if (const auto found = kept->Find(key)) {
    auto restored = WithHandle(facts, [&](const CudnnTarget& target) {
      return RestoreConvolution(target, request, found->choice, found->written);
    });
    if (restored.ok()) return restored;
    spdlog::warn("a plan that was kept is made anew: {}", Message(restored.status()));
  }
  auto chosen = MakePlan(facts, request);
  if (!chosen.ok()) return chosen;
  auto written = chosen->plan.Written();
  if (written.ok()) kept->Put(key, {chosen->choice, *std::move(written)});
  return chosen;
}

}  // namespace

StatusOr<ChosenConvolution> MakePlan(const DeviceFacts& facts, const PlanRequest& request) {
  return WithHandle(facts, [&](const CudnnTarget& target) {
    return ChooseConvolution(target, facts.name, request);
  });
}

void KeepPlansIn(const std::string& path, const std::string& identity) {
  Kept() = PlanStore::Open(path, identity);
}

void KeepNewPlans() {
  if (Kept() == nullptr) return;
  const Status saved = Kept()->Save();
  if (!saved.ok()) spdlog::warn("plans are not kept: {}", Message(saved));
}

size_t PlanningThreads() {
  return std::clamp<size_t>(std::thread::hardware_concurrency(), 1, kMostPlanningThreads);
}

PlanCache& PlansFor(const DeviceFacts& facts) {
  static auto* const caches = new EachGpu<std::unique_ptr<PlanCache>>;
  const MutexLock lock(caches->mu);
  std::unique_ptr<PlanCache>& cache = caches->of[facts.index];
  if (cache == nullptr) {
    cache = std::make_unique<PlanCache>(PlanCache::Options{
        .make = [facts](const PlanRequest& request) { return RestoreOrMake(facts, request); },
        .threads = PlanningThreads(),
        .progress = [](size_t made,
                       size_t of) { spdlog::info("plans: {} of {} convolutions", made, of); },
    });
  }
  return *cache;
}

namespace {

class CudnnEngine final : public ConvolutionEngine {
 public:
  CudnnEngine(cudnnHandle_t handle, std::shared_ptr<const ChosenConvolution> chosen)
      : handle_(handle), chosen_(std::move(chosen)) {}

  [[nodiscard]] size_t workspace_bytes() const override { return chosen_->plan.workspace_bytes(); }
  [[nodiscard]] Status Attach(std::span<const ConvolutionOperands> parts) override {
    RING_ASSIGN_OR_RETURN(packs_, chosen_->plan.Packs(parts));
    return absl::OkStatus();
  }
  [[nodiscard]] Status Launch(size_t part, cudaStream_t stream) override {
    return chosen_->plan.Launch(handle_, packs_[part], stream);
  }

 private:
  const cudnnHandle_t handle_;
  const std::shared_ptr<const ChosenConvolution> chosen_;
  std::vector<CudnnDescriptor> packs_;
};

}  // namespace

StatusOr<LibraryConvolution> MakeConvolutionEngine(const BindContext& context) {
  const graph::Graph& graph = context.program.graph;
  const DeviceFacts& facts = context.device.facts();
  RING_ASSIGN_OR_RETURN(const PlanTable* plans, PlanTableOrInstalled(context.plans));
  const auto request = PlanRequestOf(graph, context.node, facts.name, *plans);
  if (!request) return Internal("{} is no convolution of cuDNN's", context.node.op());
  PlanCache& cache = context.cache != nullptr ? *context.cache : PlansFor(facts);
  RING_ASSIGN_OR_RETURN(auto chosen, cache.Get(*request));
  const ConvolutionVariant variant = chosen->choice.variant;
  return LibraryConvolution{
      variant, std::make_unique<CudnnEngine>(context.device.cudnn(), std::move(chosen))};
}

}  // namespace ringmaster::cuda
