#include "coordinator/service/jobs_service.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "common/build_id.h"
#include "common/files.h"
#include "common/rpc/rpc_status.h"
#include "coordinator/logic/explain.h"
#include "coordinator/service/checkpoint_check.h"
#include "coordinator/service/checkpoint_download.h"
#include "coordinator/service/job_watch.h"

namespace ringmaster::coordinator {
namespace {

// Under the 4 MiB that gRPC clients accept by default.
constexpr size_t kMaxListBytes = 3'500'000;

grpc::Status NoSuchJob(const std::string& job_id) {
  return ToGrpc(Error(absl::StatusCode::kNotFound, "there is no job {}", job_id.substr(0, 100)),
                "JOB_NOT_FOUND", {{"job_id", job_id.substr(0, 100)}});
}

grpc::Status StatusOf(const Reply& reply) {
  std::map<std::string, std::string> metadata;
  if (!reply.job_id.empty()) metadata["job_id"] = reply.job_id;
  return ToGrpc(reply.refusal.status, reply.refusal.word, metadata);
}

// A call that is refused before it writes anything.
template <typename Message>
class Refused : public grpc::ServerWriteReactor<Message> {
 public:
  explicit Refused(const grpc::Status& status) { this->Finish(status); }
  void OnDone() override { delete this; }  // gRPC decides its lifetime
};

std::vector<v1::CheckpointRef> WithStep(const std::vector<v1::CheckpointRef>& all, uint64_t step) {
  std::vector<v1::CheckpointRef> found;
  std::copy_if(all.begin(), all.end(), std::back_inserter(found),
               [step](const v1::CheckpointRef& ref) { return ref.step() == step; });
  return found;
}

grpc::Status NoSuchCheckpoint(const std::string& job_id, const std::string& what) {
  return ToGrpc(
      Error(absl::StatusCode::kNotFound, "job {} has no {}; `ringctl checkpoint ls {}` lists them",
            job_id, what, job_id),
      "CHECKPOINT_NOT_FOUND", {{"job_id", job_id}});
}

grpc::Status NoSuchStep(const std::string& job_id, uint64_t step) {
  return NoSuchCheckpoint(job_id, fmt::format("checkpoint of step {}", step));
}

}  // namespace

grpc::Status JobsService::CheckOwn(grpc::CallbackServerContext* context,
                                   const v1::JobStatus& job) const {
  const Passage passage = caller_of_(context);
  if (!passage.refusal.status.ok()) return ToGrpc(passage.refusal.status, passage.refusal.word);
  const std::string who = passage.caller.ToString();
  if (passage.caller.role != v1::ROLE_SUBMITTER || job.submitted_by() == who) return {};
  return ToGrpc(Error(absl::StatusCode::kPermissionDenied,
                      "job {} is not {}'s; who submitted it, and an administrator, may do that",
                      job.job_id(), who),
                "NOT_PERMITTED", {{"job_id", job.job_id()}});
}

grpc::ServerUnaryReactor* JobsService::Submit(grpc::CallbackServerContext* context,
                                              const v1::SubmitRequest* request,
                                              v1::SubmitResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const Passage passage = caller_of_(context);
  if (!passage.refusal.status.ok()) {
    reactor->Finish(ToGrpc(passage.refusal.status, passage.refusal.word));
    return reactor;
  }
  control_.Ask(SubmitAsked{*request, passage.caller.ToString()},
               [reactor, response](const Reply& reply) {
                 response->set_job_id(reply.job_id);
                 response->set_existed(reply.existed);
                 reactor->Finish(StatusOf(reply));
               });
  return reactor;
}

grpc::ServerUnaryReactor* JobsService::Cancel(grpc::CallbackServerContext* context,
                                              const v1::CancelRequest* request,
                                              v1::CancelResponse*) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const StatusBoard::View view = board_.Find(request->job_id());
  if (const grpc::Status own = view ? CheckOwn(context, view->status) : grpc::Status(); !own.ok()) {
    reactor->Finish(own);
    return reactor;
  }
  control_.Ask(CancelAsked{JobId(request->job_id())},
               [reactor](const Reply& reply) { reactor->Finish(StatusOf(reply)); });
  return reactor;
}

grpc::ServerUnaryReactor* JobsService::List(grpc::CallbackServerContext* context,
                                            const v1::ListRequest*, v1::ListResponse* response) {
  *response = board_.List(kMaxListBytes);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* JobsService::Get(grpc::CallbackServerContext* context,
                                           const v1::GetRequest* request, v1::JobStatus* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const StatusBoard::View view = board_.Find(request->job_id());
  if (view) *response = view->status;
  reactor->Finish(view ? grpc::Status::OK : NoSuchJob(request->job_id()));
  return reactor;
}

grpc::ServerUnaryReactor* JobsService::GetGraph(grpc::CallbackServerContext* context,
                                                const v1::GetRequest* request,
                                                v1::Graph* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  control_.Ask(GraphAsked{JobId(request->job_id())}, [reactor, response](const Reply& reply) {
    *response = reply.graph;
    reactor->Finish(StatusOf(reply));
  });
  return reactor;
}

grpc::ServerWriteReactor<v1::JobStatus>* JobsService::Watch(grpc::CallbackServerContext*,
                                                            const v1::WatchRequest* request) {
  if (!board_.Find(request->job_id())) {
    return new Refused<v1::JobStatus>(NoSuchJob(request->job_id()));
  }
  const auto watch = std::make_shared<JobWatch>(board_, request->job_id());
  watch->Begin();
  return watch.get();
}

grpc::ServerUnaryReactor* JobsService::Why(grpc::CallbackServerContext* context,
                                           const v1::WhyRequest* request,
                                           v1::WhyResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const StatusBoard::View view = board_.Find(request->job_id());
  if (view) {
    *response = Explain(*view);
    if (const std::string trouble = board_.StoreTrouble(); !trouble.empty()) {
      response->add_advice(trouble);
    }
  }
  reactor->Finish(view ? grpc::Status::OK : NoSuchJob(request->job_id()));
  return reactor;
}

grpc::ServerUnaryReactor* JobsService::ListEvents(grpc::CallbackServerContext* context,
                                                  const v1::ListEventsRequest* request,
                                                  v1::ListEventsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const StatusBoard::View view = board_.Find(request->job_id());
  if (view) {
    for (const v1::Event& event : view->events.all()) {
      if (event.number() > request->after()) *response->add_events() = event;
    }
  }
  reactor->Finish(view ? grpc::Status::OK : NoSuchJob(request->job_id()));
  return reactor;
}

grpc::ServerUnaryReactor* JobsService::GetMetrics(grpc::CallbackServerContext* context,
                                                  const v1::GetMetricsRequest* request,
                                                  v1::GetMetricsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const bool known =
      request->series() == v1::METRIC_SERIES_EPOCHS || request->series() == v1::METRIC_SERIES_STEPS;
  if (!board_.Find(request->job_id()) || !known) {
    reactor->Finish(known ? NoSuchJob(request->job_id())
                          : ToGrpc(InvalidArgument("series: expected METRIC_SERIES_EPOCHS or "
                                                   "METRIC_SERIES_STEPS, got {}",
                                                   static_cast<int>(request->series())),
                                   "INVALID_REQUEST"));
    return reactor;
  }
  control_.ReadMetrics(*request, [reactor, response](const ControlLoop::Metrics& metrics) {
    if (metrics.ok()) *response = *metrics;
    const bool busy = absl::IsResourceExhausted(metrics.status());
    reactor->Finish(ToGrpc(metrics.status(), busy ? "OVERLOADED" : "STORE_UNAVAILABLE"));
  });
  return reactor;
}

grpc::ServerWriteReactor<v1::LogLine>* JobsService::Logs(grpc::CallbackServerContext*,
                                                         const v1::LogsRequest* request) {
  if (!board_.Find(request->job_id())) {
    return new Refused<v1::LogLine>(NoSuchJob(request->job_id()));
  }
  const auto stream = std::make_shared<LogStream>(logs_, *request);
  stream->Begin();
  return stream.get();
}

grpc::ServerUnaryReactor* JobsService::DrainWorker(grpc::CallbackServerContext* context,
                                                   const v1::DrainWorkerRequest* request,
                                                   v1::DrainWorkerResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  control_.Ask(DrainAsked{request->worker(), request->resume()},
               [reactor, response](const Reply& reply) {
                 response->set_job_id(reply.job_id);
                 reactor->Finish(StatusOf(reply));
               });
  return reactor;
}

grpc::ServerUnaryReactor* JobsService::ListWorkers(grpc::CallbackServerContext* context,
                                                   const v1::ListWorkersRequest*,
                                                   v1::ListWorkersResponse* response) {
  *response = board_.Workers(kMaxListBytes);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  v1::CoordinatorFigures& own = *response->mutable_coordinator();
  own.set_version(VersionLine("ringmaster"));
  own.set_data_free(FreeBytes(data_dir_));
  own.set_unix_ms(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* JobsService::ListCheckpoints(grpc::CallbackServerContext* context,
                                                       const v1::ListCheckpointsRequest* request,
                                                       v1::ListCheckpointsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const StatusBoard::View view = board_.Find(request->job_id());
  if (view)
    response->mutable_checkpoints()->Add(view->checkpoints.begin(), view->checkpoints.end());
  reactor->Finish(view ? grpc::Status::OK : NoSuchJob(request->job_id()));
  return reactor;
}

grpc::ServerUnaryReactor* JobsService::VerifyCheckpoints(
    grpc::CallbackServerContext* context, const v1::VerifyCheckpointsRequest* request,
    v1::VerifyCheckpointsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const StatusBoard::View view = board_.Find(request->job_id());
  std::vector<v1::CheckpointRef> refs;
  if (view) {
    refs = request->has_step() ? WithStep(view->checkpoints, request->step()) : view->checkpoints;
  }
  if (!view || (request->has_step() && refs.empty())) {
    reactor->Finish(view ? NoSuchStep(request->job_id(), request->step())
                         : NoSuchJob(request->job_id()));
    return reactor;
  }
  if (const grpc::Status own = CheckOwn(context, view->status); !own.ok()) {
    reactor->Finish(own);
    return reactor;
  }
  CheckpointCheck::Hearer hearer;
  hearer.tell = [refs, response](size_t index, const CheckpointCheck::Verdict& verdict) {
    v1::CheckedCheckpoint& checked = *response->add_checkpoints();
    *checked.mutable_checkpoint() = refs[index];
    if (!verdict.status.ok()) checked.set_error(Message(verdict.status));
    return CheckpointCheck::Next::kGoOn;
  };
  hearer.wanted = [context] { return !context->IsCancelled(); };
  hearer.end = [reactor](const Status& status) { reactor->Finish(ToGrpc(status, "UNAVAILABLE")); };
  CheckpointCheck::Begin(disk_, refs, std::move(hearer));
  return reactor;
}

grpc::ServerWriteReactor<v1::FilePiece>* JobsService::GetCheckpoint(
    grpc::CallbackServerContext* context, const v1::GetCheckpointRequest* request) {
  const StatusBoard::View view = board_.Find(request->job_id());
  if (!view) return new Refused<v1::FilePiece>(NoSuchJob(request->job_id()));
  if (const grpc::Status own = CheckOwn(context, view->status); !own.ok()) {
    return new Refused<v1::FilePiece>(own);
  }
  const std::vector<v1::CheckpointRef> refs =
      request->has_step() ? WithStep(view->checkpoints, request->step()) : view->checkpoints;
  if (refs.empty()) {
    return new Refused<v1::FilePiece>(request->has_step()
                                          ? NoSuchStep(request->job_id(), request->step())
                                          : NoSuchCheckpoint(request->job_id(), "checkpoint yet"));
  }
  const auto download = std::make_shared<CheckpointDownload>(disk_, refs.back());
  download->Begin();
  return download.get();
}

}  // namespace ringmaster::coordinator
