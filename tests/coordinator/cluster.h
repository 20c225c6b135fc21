// A coordinator in this process with a client, on a free port and a folder of its own. Main thread.
#pragma once

#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "coordinator/daemon.h"
#include "ringmaster/v1/jobs.grpc.pb.h"
#include "tests/support/cluster_messages.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::coordinator {

// A context whose deadline ends a test that would wait forever.
struct Limited : grpc::ClientContext {
  Limited() { set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20)); }
};

// Fake workers send no heartbeats of themselves: nobody is silent for too long in a test.
inline Options Patient() {
  Options options;
  options.silence = options.lease = std::chrono::seconds(20);
  return options;
}

class Cluster {
 public:
  // `flags` but for the address and the folder.
  explicit Cluster(Flags flags) : flags_(std::move(flags)) {
    spdlog::set_level(spdlog::level::off);
    flags_.listen = {"127.0.0.1", 0};
    flags_.data_dir = folder_.path();
    Start();
  }
  explicit Cluster(const Options& options = Patient(), uint64_t checkpoint_quota = UINT64_MAX)
      : Cluster(FlagsOf(options, checkpoint_quota)) {}

  // A coordinator on the same data folder; the one before is gone, its port too.
  void Start() {
    daemon_.reset();
    auto daemon = Daemon::Create(flags_);
    RING_CHECK(daemon.ok(), Message(daemon.status()).c_str());
    daemon_ = std::move(*daemon);
    channel_ = NewChannel();
    jobs_ = v1::Jobs::NewStub(channel_);
  }

  // A connection of its own, so that it can break alone.
  std::shared_ptr<grpc::Channel> NewChannel() const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(daemon_->address(), grpc::InsecureChannelCredentials(),
                                     arguments);
  }

  grpc::Status Submit(const v1::JobSpec& spec, const std::string& key,
                      v1::SubmitResponse* response) {
    Limited context;
    v1::SubmitRequest request;
    *request.mutable_spec() = spec;
    request.set_idempotency_key(key);
    return jobs_->Submit(&context, request, response);
  }

  // The id, or the error message.
  std::string Submit(const v1::JobSpec& spec, const std::string& key) {
    v1::SubmitResponse response;
    const grpc::Status status = Submit(spec, key, &response);
    return status.ok() ? response.job_id() : status.error_message();
  }

  v1::JobStatus Get(const std::string& job_id) {
    Limited context;
    v1::GetRequest request;
    request.set_job_id(job_id);
    v1::JobStatus status;
    jobs_->Get(&context, request, &status);
    return status;
  }

  // The worker is to leave its job, or takes jobs again.
  grpc::Status Drain(const std::string& worker, bool resume, std::string* job_id = nullptr) {
    Limited context;
    v1::DrainWorkerRequest request;
    request.set_worker(worker);
    request.set_resume(resume);
    v1::DrainWorkerResponse response;
    const grpc::Status status = jobs_->DrainWorker(&context, request, &response);
    if (job_id != nullptr) *job_id = response.job_id();
    return status;
  }

  // `free`, `busy` ...; empty when it is not attached.
  std::string StateOf(const std::string& worker) {
    Limited context;
    v1::ListWorkersResponse workers;
    jobs_->ListWorkers(&context, {}, &workers);
    for (const v1::WorkerStatus& status : workers.workers()) {
      if (status.name() == worker) return status.state();
    }
    return "";
  }

  grpc::Status Cancel(const std::string& job_id) {
    Limited context;
    v1::CancelRequest request;
    request.set_job_id(job_id);
    v1::CancelResponse response;
    return jobs_->Cancel(&context, request, &response);
  }

  // The first status, as it changes, that `is` accepts; empty when the job ends without one.
  template <typename Is>
  v1::JobStatus Await(const std::string& job_id, Is is) {
    Limited context;
    v1::WatchRequest request;
    request.set_job_id(job_id);
    const auto reader = jobs_->Watch(&context, request);
    v1::JobStatus status;
    while (reader->Read(&status)) {
      if (is(status)) return status;
    }
    return {};
  }
  v1::JobStatus AwaitState(const std::string& job_id, v1::JobState state) {
    return Await(job_id, [state](const v1::JobStatus& s) { return s.state() == state; });
  }

  Daemon& daemon() { return *daemon_; }
  v1::Jobs::Stub& jobs() { return *jobs_; }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  const std::string& folder() const { return folder_.path(); }

 private:
  static Flags FlagsOf(const Options& options, uint64_t checkpoint_quota) {
    Flags flags;
    flags.options = options;
    flags.checkpoint_quota = checkpoint_quota;
    return flags;
  }

  const TemporaryFolder folder_;
  Flags flags_;
  std::unique_ptr<Daemon> daemon_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Jobs::Stub> jobs_;
};

}  // namespace ringmaster::coordinator
