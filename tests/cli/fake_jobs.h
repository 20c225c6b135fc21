// A coordinator for the tests of ringctl: seven jobs, one in each state, with fixed numbers and
// times. It listens on a port of its own; thread-safe.
#pragma once

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/mutex.h"
#include "common/rpc/rpc_status.h"
#include "ringmaster/v1/bench.grpc.pb.h"
#include "ringmaster/v1/jobs.grpc.pb.h"
#include "tests/cli/fake_access.h"
#include "tests/cli/job_statuses.h"

namespace ringmaster::cli {

// Measures whatever it is asked: every figure is made of the sizes.
class FakeBench final : public v1::Bench::Service {
 public:
  grpc::Status AllReduce(grpc::ServerContext*, const v1::AllReduceRequest* request,
                         v1::AllReduceReport* response) override;
};

class FakeJobs final : public v1::Jobs::Service {
 public:
  FakeJobs();
  [[nodiscard]] std::string address() const { return fmt::format("127.0.0.1:{}", port_); }

  grpc::Status Submit(grpc::ServerContext*, const v1::SubmitRequest* request,
                      v1::SubmitResponse* response) override;
  grpc::Status List(grpc::ServerContext*, const v1::ListRequest*,
                    v1::ListResponse* response) override;
  grpc::Status Get(grpc::ServerContext*, const v1::GetRequest* request,
                   v1::JobStatus* response) override;
  // Of a linear model, whatever the job's is.
  grpc::Status GetGraph(grpc::ServerContext*, const v1::GetRequest* request,
                        v1::Graph* response) override;
  grpc::Status Watch(grpc::ServerContext*, const v1::WatchRequest* request,
                     grpc::ServerWriter<v1::JobStatus>* writer) override;
  grpc::Status Cancel(grpc::ServerContext*, const v1::CancelRequest* request,
                      v1::CancelResponse*) override;
  grpc::Status Remove(grpc::ServerContext*, const v1::RemoveRequest* request,
                      v1::RemoveResponse*) override;
  grpc::Status Why(grpc::ServerContext*, const v1::WhyRequest* request,
                   v1::WhyResponse* response) override;
  grpc::Status ListEvents(grpc::ServerContext*, const v1::ListEventsRequest* request,
                          v1::ListEventsResponse* response) override;
  // Of a job that has applied steps: its epochs, every tenth step; in pages of a few points.
  grpc::Status GetMetrics(grpc::ServerContext*, const v1::GetMetricsRequest* request,
                          v1::GetMetricsResponse* response) override;
  grpc::Status Logs(grpc::ServerContext*, const v1::LogsRequest* request,
                    grpc::ServerWriter<v1::LogLine>* writer) override;
  grpc::Status ListWorkers(grpc::ServerContext*, const v1::ListWorkersRequest*,
                           v1::ListWorkersResponse* response) override;
  grpc::Status DrainWorker(grpc::ServerContext*, const v1::DrainWorkerRequest* request,
                           v1::DrainWorkerResponse* response) override;
  grpc::Status VerifyCheckpoints(grpc::ServerContext*, const v1::VerifyCheckpointsRequest* request,
                                 v1::VerifyCheckpointsResponse* response) override;
  grpc::Status ListCheckpoints(grpc::ServerContext*, const v1::ListCheckpointsRequest* request,
                               v1::ListCheckpointsResponse* response) override;

 private:
  // What a watcher is told, the newest last: what Get answers is the first.
  using Story = std::vector<v1::JobStatus>;
  void Add(const std::string& job_id, Story story);
  grpc::Status Find(const std::string& job_id, const Story** story) const;

  std::string StateOf(const std::string& worker);

  std::map<std::string, Story> jobs_;  // constant after construction
  Mutex mu_;
  std::map<std::string, int> drained_ ABSL_GUARDED_BY(mu_);  // and the looks at it since then
  FakeBench bench_;
  FakeAccess access_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace ringmaster::cli
