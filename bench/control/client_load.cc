#include "bench/control/client_load.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "bench/quantile.h"
#include "common/mutex.h"

namespace ringmaster::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Done = std::function<void(const grpc::Status&)>;
// Begins call number `index` on a stub; `done` runs once, later.
using Begin = std::function<void(v1::Jobs::Stub&, uint64_t index, Done done)>;

// Keeps calls under way until enough were begun or the time is over. Each of them holds it.
class Load : public std::enable_shared_from_this<Load> {
 public:
  Load(const CoordinatorProcess& coordinator, const LoadOptions& options, Begin begin)
      : options_(options), begin_(std::move(begin)) {
    for (int i = 0; i < options.connections; ++i) stubs_.push_back(coordinator.NewJobs());
  }

  LoadResult Run() {
    began_ = Clock::now();
    for (int i = 0; i < options_.under_way; ++i) Next();
    MutexLock lock(mu_);
    WaitFor(condition_, mu_, [this] { return under_way_ == 0; });
    result_.seconds = std::chrono::duration<double>(last_ - began_).count();
    if (!millis_.empty()) {
      result_.call_p50_ms = Quantile(millis_, 0.5);
      result_.call_p99_ms = Quantile(millis_, 0.99);
    }
    return result_;
  }

 private:
  void Next() {
    const Clock::time_point now = Clock::now();
    uint64_t index = 0;
    {
      MutexLock lock(mu_);
      const bool over = now - began_ >= options_.lasts ||
                        (options_.over != nullptr && *options_.over) ||
                        (options_.most > 0 && begun_ >= options_.most);
      if (over) return;
      index = begun_++;
      ++under_way_;
    }
    begin_(*stubs_[index % stubs_.size()], index,
           [this, self = shared_from_this(), now](const grpc::Status& status) {
             Note(status, now);
             Next();
             MutexLock lock(mu_);
             if (--under_way_ == 0) condition_.NotifyAll();
           });
  }

  void Note(const grpc::Status& status, Clock::time_point begun) {
    MutexLock lock(mu_);
    last_ = Clock::now();
    millis_.push_back(std::chrono::duration<double, std::milli>(last_ - begun).count());
    status.ok() ? ++result_.done : ++result_.failed;
    if (!status.ok() && result_.error.empty()) result_.error = status.error_message();
  }

  const LoadOptions options_;
  const Begin begin_;
  std::vector<std::unique_ptr<v1::Jobs::Stub>> stubs_;
  Clock::time_point began_;
  Mutex mu_;
  Condition condition_;
  uint64_t begun_ ABSL_GUARDED_BY(mu_) = 0;
  int under_way_ ABSL_GUARDED_BY(mu_) = 0;
  Clock::time_point last_ ABSL_GUARDED_BY(mu_);
  std::vector<double> millis_ ABSL_GUARDED_BY(mu_);
  LoadResult result_ ABSL_GUARDED_BY(mu_);
};

template <typename Request, typename Response>
struct Call {
  grpc::ClientContext context;
  Request request;
  Response response;
};

}  // namespace

LoadResult Submit(const CoordinatorProcess& coordinator, const v1::JobSpec& spec,
                  const LoadOptions& options) {
  const std::string salt = fmt::format("{}-{}", getpid(), Clock::now().time_since_epoch().count());
  const Begin begin = [&](v1::Jobs::Stub& stub, uint64_t index, Done done) {
    const auto call = std::make_shared<Call<v1::SubmitRequest, v1::SubmitResponse>>();
    *call->request.mutable_spec() = spec;
    call->request.set_idempotency_key(fmt::format("{}-{}", salt, index));
    stub.async()->Submit(&call->context, &call->request, &call->response,
                         [call, done = std::move(done)](const grpc::Status& s) { done(s); });
  };
  return std::make_shared<Load>(coordinator, options, begin)->Run();
}

LoadResult AskLoop(const CoordinatorProcess& coordinator, const LoadOptions& options) {
  LoadResult result;
  const std::unique_ptr<v1::Jobs::Stub> jobs = coordinator.NewJobs();
  const Clock::time_point began = Clock::now();
  std::vector<double> millis;
  while (!*options.over && Clock::now() - began < options.lasts) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    v1::GetRequest request;
    request.set_job_id("none");
    v1::Graph graph;
    const Clock::time_point asked = Clock::now();
    const grpc::Status status = jobs->GetGraph(&context, request, &graph);
    const double took = std::chrono::duration<double, std::milli>(Clock::now() - asked).count();
    if (status.error_code() == grpc::StatusCode::NOT_FOUND) {
      ++result.done;
      millis.push_back(took);
    } else {
      ++result.failed;
      if (result.error.empty()) result.error = status.error_message();
    }
    std::this_thread::sleep_for(options.pause);
  }
  result.seconds = std::chrono::duration<double>(Clock::now() - began).count();
  if (!millis.empty()) {
    result.call_p50_ms = Quantile(millis, 0.5);
    result.call_p99_ms = Quantile(millis, 0.99);
  }
  return result;
}

LoadResult ReadStatus(const CoordinatorProcess& coordinator, const std::string& job_id,
                      const LoadOptions& options) {
  const Begin begin = [&](v1::Jobs::Stub& stub, uint64_t, Done done) {
    const auto call = std::make_shared<Call<v1::GetRequest, v1::JobStatus>>();
    call->request.set_job_id(job_id);
    stub.async()->Get(&call->context, &call->request, &call->response,
                      [call, done = std::move(done)](const grpc::Status& s) { done(s); });
  };
  return std::make_shared<Load>(coordinator, options, begin)->Run();
}

}  // namespace ringmaster::bench
