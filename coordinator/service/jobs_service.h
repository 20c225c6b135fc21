// The Jobs service: translates, asks the control loop or reads the board, replies. Owned by the
// daemon; thread-safe. It decides nothing.
#pragma once

#include <functional>
#include <string>

#include "common/loop.h"
#include "coordinator/service/control_loop.h"
#include "coordinator/service/log_stream.h"
#include "coordinator/service/open_calls.h"
#include "coordinator/service/status_board.h"
#include "ringmaster/v1/jobs.grpc.pb.h"

namespace ringmaster::coordinator {

class JobsService final : public v1::Jobs::CallbackService {
 public:
  // All outlive it; `disk` reads checkpoints; `data_dir` is the daemon's.
  JobsService(ControlLoop& control, StatusBoard& board, Loop& disk, const LogStream::Hands& logs,
              std::string data_dir, OpenCalls& calls)
      : control_(control),
        board_(board),
        disk_(disk),
        logs_(logs),
        data_dir_(std::move(data_dir)),
        calls_(calls) {}

  grpc::ServerUnaryReactor* Submit(grpc::CallbackServerContext* context,
                                   const v1::SubmitRequest* request,
                                   v1::SubmitResponse* response) override;
  grpc::ServerUnaryReactor* List(grpc::CallbackServerContext* context,
                                 const v1::ListRequest* request,
                                 v1::ListResponse* response) override;
  grpc::ServerUnaryReactor* Get(grpc::CallbackServerContext* context, const v1::GetRequest* request,
                                v1::JobStatus* response) override;
  grpc::ServerUnaryReactor* GetGraph(grpc::CallbackServerContext* context,
                                     const v1::GetRequest* request, v1::Graph* response) override;
  grpc::ServerWriteReactor<v1::JobStatus>* Watch(grpc::CallbackServerContext* context,
                                                 const v1::WatchRequest* request) override;
  grpc::ServerUnaryReactor* Cancel(grpc::CallbackServerContext* context,
                                   const v1::CancelRequest* request,
                                   v1::CancelResponse* response) override;
  grpc::ServerUnaryReactor* Remove(grpc::CallbackServerContext* context,
                                   const v1::RemoveRequest* request,
                                   v1::RemoveResponse* response) override;
  grpc::ServerUnaryReactor* Why(grpc::CallbackServerContext* context, const v1::WhyRequest* request,
                                v1::WhyResponse* response) override;
  grpc::ServerUnaryReactor* ListEvents(grpc::CallbackServerContext* context,
                                       const v1::ListEventsRequest* request,
                                       v1::ListEventsResponse* response) override;
  grpc::ServerUnaryReactor* GetMetrics(grpc::CallbackServerContext* context,
                                       const v1::GetMetricsRequest* request,
                                       v1::GetMetricsResponse* response) override;
  grpc::ServerWriteReactor<v1::LogLine>* Logs(grpc::CallbackServerContext* context,
                                              const v1::LogsRequest* request) override;
  grpc::ServerUnaryReactor* DrainWorker(grpc::CallbackServerContext* context,
                                        const v1::DrainWorkerRequest* request,
                                        v1::DrainWorkerResponse* response) override;
  grpc::ServerUnaryReactor* ListWorkers(grpc::CallbackServerContext* context,
                                        const v1::ListWorkersRequest* request,
                                        v1::ListWorkersResponse* response) override;
  grpc::ServerUnaryReactor* ListCheckpoints(grpc::CallbackServerContext* context,
                                            const v1::ListCheckpointsRequest* request,
                                            v1::ListCheckpointsResponse* response) override;
  grpc::ServerUnaryReactor* VerifyCheckpoints(grpc::CallbackServerContext* context,
                                              const v1::VerifyCheckpointsRequest* request,
                                              v1::VerifyCheckpointsResponse* response) override;
  grpc::ServerWriteReactor<v1::FilePiece>* GetCheckpoint(
      grpc::CallbackServerContext* context, const v1::GetCheckpointRequest* request) override;

 private:
  // Asks the control loop, when the job is the caller's or everybody's.
  grpc::ServerUnaryReactor* AskOfOwn(grpc::CallbackServerContext* context, const char* method,
                                     const std::string& job_id,
                                     const std::function<Event(const Caller& caller)>& event);
  // What the board says of a job answers it.
  grpc::ServerUnaryReactor* AnswerOfJob(grpc::CallbackServerContext* context, const Method& method,
                                        const std::string& job_id,
                                        const std::function<void(const JobView&)>& answer);

  ControlLoop& control_;
  StatusBoard& board_;
  Loop& disk_;
  const LogStream::Hands logs_;
  const std::string data_dir_;
  OpenCalls& calls_;
};

}  // namespace ringmaster::coordinator
