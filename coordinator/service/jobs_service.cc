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

grpc::Status StatusOf(const Reply& reply) {
  std::map<std::string, std::string> metadata;
  if (!reply.job_id.empty()) metadata["job_id"] = reply.job_id;
  return ToGrpc(reply.refusal.status, reply.refusal.word, metadata);
}

// Of a method whose scope is OWN for submitters (rules.proto): whether the job is the caller's.
grpc::Status CheckOwn(const Caller& caller, const v1::JobStatus& job) {
  const std::string who = caller.ToString();
  if (caller.role != v1::ROLE_SUBMITTER || job.submitted_by() == who) return {};
  return ToGrpc(Error(absl::StatusCode::kPermissionDenied,
                      "job {} is not {}'s; who submitted it, and an administrator, may do that",
                      job.job_id(), who),
                "NOT_PERMITTED", {{"job_id", job.job_id()}});
}

grpc::Status StatusOf(const Refusal& refusal) { return ToGrpc(refusal.status, refusal.word); }

template <typename Message>
using Refused = RefusedCall<grpc::ServerWriteReactor<Message>>;

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

grpc::ServerUnaryReactor* JobsService::Submit(grpc::CallbackServerContext* context,
                                              const v1::SubmitRequest* request,
                                              v1::SubmitResponse* response) {
  return calls_.Answer(context, {"Jobs/Submit", CallKind::kSubmission},
                       [this, request, response](UnaryCall* call) {
                         using Sources = SubmitAsked::Sources;
                         const Caller& caller = call->caller();
                         const Sources sources =
                             caller.role == v1::ROLE_ADMIN ? Sources::kEverybodys : Sources::kOwn;
                         control_.Ask(SubmitAsked{*request, caller.ToString(), sources},
                                      [call, response](const Reply& reply) {
                                        response->set_job_id(reply.job_id);
                                        response->set_existed(reply.existed);
                                        call->Finish(StatusOf(reply));
                                      });
                       });
}

grpc::ServerUnaryReactor* JobsService::Cancel(grpc::CallbackServerContext* context,
                                              const v1::CancelRequest* request,
                                              v1::CancelResponse*) {
  return AskOfOwn(context, "Jobs/Cancel", request->job_id(),
                  [request](const Caller&) { return CancelAsked{JobId(request->job_id())}; });
}

grpc::ServerUnaryReactor* JobsService::Remove(grpc::CallbackServerContext* context,
                                              const v1::RemoveRequest* request,
                                              v1::RemoveResponse*) {
  return AskOfOwn(context, "Jobs/Remove", request->job_id(), [request](const Caller& caller) {
    return RemoveAsked{JobId(request->job_id()), caller.ToString()};
  });
}

grpc::ServerUnaryReactor* JobsService::AskOfOwn(
    grpc::CallbackServerContext* context, const char* method, const std::string& job_id,
    const std::function<Event(const Caller& caller)>& event) {
  return calls_.Answer(context, {method, CallKind::kShort}, [this, job_id, event](UnaryCall* call) {
    const StatusBoard::View view = board_.Find(job_id);
    if (!view) return call->Finish(NoSuchJob(job_id));
    if (const grpc::Status own = CheckOwn(call->caller(), view->status); !own.ok()) {
      return call->Finish(own);
    }
    control_.Ask(event(call->caller()),
                 [call](const Reply& reply) { call->Finish(StatusOf(reply)); });
  });
}

grpc::ServerUnaryReactor* JobsService::List(grpc::CallbackServerContext* context,
                                            const v1::ListRequest*, v1::ListResponse* response) {
  return calls_.Answer(context, {"Jobs/List", CallKind::kShort}, [this, response](UnaryCall* call) {
    *response = board_.List(kMaxListBytes);
    call->Finish(grpc::Status::OK);
  });
}

grpc::ServerUnaryReactor* JobsService::AnswerOfJob(
    grpc::CallbackServerContext* context, const Method& method, const std::string& job_id,
    const std::function<void(const JobView&)>& answer) {
  return calls_.Answer(context, method, [this, job_id, answer](UnaryCall* call) {
    const StatusBoard::View view = board_.Find(job_id);
    if (view) answer(*view);
    call->Finish(view ? grpc::Status::OK : NoSuchJob(job_id));
  });
}

grpc::ServerUnaryReactor* JobsService::Get(grpc::CallbackServerContext* context,
                                           const v1::GetRequest* request, v1::JobStatus* response) {
  return AnswerOfJob(context, {"Jobs/Get", CallKind::kShort}, request->job_id(),
                     [response](const JobView& view) { *response = view.status; });
}

grpc::ServerUnaryReactor* JobsService::GetGraph(grpc::CallbackServerContext* context,
                                                const v1::GetRequest* request,
                                                v1::Graph* response) {
  return calls_.Answer(
      context, {"Jobs/GetGraph", CallKind::kShort}, [this, request, response](UnaryCall* call) {
        control_.Ask(GraphAsked{JobId(request->job_id())}, [call, response](const Reply& reply) {
          *response = reply.graph;
          call->Finish(StatusOf(reply));
        });
      });
}

grpc::ServerWriteReactor<v1::JobStatus>* JobsService::Watch(grpc::CallbackServerContext* context,
                                                            const v1::WatchRequest* request) {
  OpenCalls::Entry entry = calls_.Enter(context, {"Jobs/Watch", CallKind::kLasting});
  if (!entry.call) return new Refused<v1::JobStatus>(StatusOf(entry.refusal));
  if (!board_.Find(request->job_id())) {
    return new Refused<v1::JobStatus>(NoSuchJob(request->job_id()), std::move(entry.call));
  }
  const auto watch = std::make_shared<JobWatch>(board_, request->job_id(), std::move(entry.call));
  watch->Begin();
  return watch.get();
}

grpc::ServerUnaryReactor* JobsService::Why(grpc::CallbackServerContext* context,
                                           const v1::WhyRequest* request,
                                           v1::WhyResponse* response) {
  return AnswerOfJob(context, {"Jobs/Why", CallKind::kShort}, request->job_id(),
                     [this, response](const JobView& view) {
                       *response = Explain(view);
                       const std::string trouble = board_.StoreTrouble();
                       if (!trouble.empty()) response->add_advice(trouble);
                     });
}

grpc::ServerUnaryReactor* JobsService::ListEvents(grpc::CallbackServerContext* context,
                                                  const v1::ListEventsRequest* request,
                                                  v1::ListEventsResponse* response) {
  return AnswerOfJob(context, {"Jobs/ListEvents", CallKind::kShort}, request->job_id(),
                     [request, response](const JobView& view) {
                       for (const v1::Event& event : view.events.all()) {
                         if (event.number() > request->after()) *response->add_events() = event;
                       }
                     });
}

grpc::ServerUnaryReactor* JobsService::GetMetrics(grpc::CallbackServerContext* context,
                                                  const v1::GetMetricsRequest* request,
                                                  v1::GetMetricsResponse* response) {
  return calls_.Answer(
      context, {"Jobs/GetMetrics", CallKind::kShort}, [this, request, response](UnaryCall* call) {
        const bool known = request->series() == v1::METRIC_SERIES_EPOCHS ||
                           request->series() == v1::METRIC_SERIES_STEPS;
        if (!board_.Find(request->job_id()) || !known) {
          return call->Finish(
              known ? NoSuchJob(request->job_id())
                    : ToGrpc(InvalidArgument("series: expected METRIC_SERIES_EPOCHS or "
                                             "METRIC_SERIES_STEPS, got {}",
                                             static_cast<int>(request->series())),
                             "INVALID_REQUEST"));
        }
        control_.ReadMetrics(*request, [call, response](const ControlLoop::Metrics& metrics) {
          if (metrics.ok()) *response = *metrics;
          const bool busy = absl::IsResourceExhausted(metrics.status());
          call->Finish(ToGrpc(metrics.status(), busy ? "OVERLOADED" : "STORE_UNAVAILABLE"));
        });
      });
}

grpc::ServerWriteReactor<v1::LogLine>* JobsService::Logs(grpc::CallbackServerContext* context,
                                                         const v1::LogsRequest* request) {
  OpenCalls::Entry entry = calls_.Enter(context, {"Jobs/Logs", CallKind::kLasting});
  if (!entry.call) return new Refused<v1::LogLine>(StatusOf(entry.refusal));
  if (!board_.Find(request->job_id())) {
    return new Refused<v1::LogLine>(NoSuchJob(request->job_id()), std::move(entry.call));
  }
  const auto stream = std::make_shared<LogStream>(logs_, *request, std::move(entry.call));
  stream->Begin();
  return stream.get();
}

grpc::ServerUnaryReactor* JobsService::DrainWorker(grpc::CallbackServerContext* context,
                                                   const v1::DrainWorkerRequest* request,
                                                   v1::DrainWorkerResponse* response) {
  return calls_.Answer(context, {"Jobs/DrainWorker", CallKind::kShort},
                       [this, request, response](UnaryCall* call) {
                         control_.Ask(DrainAsked{request->worker(), request->resume()},
                                      [call, response](const Reply& reply) {
                                        response->set_job_id(reply.job_id);
                                        call->Finish(StatusOf(reply));
                                      });
                       });
}

grpc::ServerUnaryReactor* JobsService::ListWorkers(grpc::CallbackServerContext* context,
                                                   const v1::ListWorkersRequest*,
                                                   v1::ListWorkersResponse* response) {
  return calls_.Answer(
      context, {"Jobs/ListWorkers", CallKind::kShort}, [this, response](UnaryCall* call) {
        *response = board_.Workers(kMaxListBytes);
        const auto now = std::chrono::system_clock::now().time_since_epoch();
        v1::CoordinatorFigures& own = *response->mutable_coordinator();
        own.set_version(VersionLine("ringmaster"));
        if (const auto free = FreeBytes(data_dir_)) own.set_data_free(*free);
        control_.waits().Show(own);
        own.set_unix_ms(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
        call->Finish(grpc::Status::OK);
      });
}

grpc::ServerUnaryReactor* JobsService::ListCheckpoints(grpc::CallbackServerContext* context,
                                                       const v1::ListCheckpointsRequest* request,
                                                       v1::ListCheckpointsResponse* response) {
  return AnswerOfJob(context, {"Jobs/ListCheckpoints", CallKind::kShort}, request->job_id(),
                     [response](const JobView& view) {
                       response->mutable_checkpoints()->Add(view.checkpoints.begin(),
                                                            view.checkpoints.end());
                     });
}

grpc::ServerUnaryReactor* JobsService::VerifyCheckpoints(
    grpc::CallbackServerContext* context, const v1::VerifyCheckpointsRequest* request,
    v1::VerifyCheckpointsResponse* response) {
  return calls_.Answer(
      context, {"Jobs/VerifyCheckpoints", CallKind::kLasting},
      [this, context, request, response](UnaryCall* call) {
        const StatusBoard::View view = board_.Find(request->job_id());
        std::vector<v1::CheckpointRef> refs;
        if (view) {
          refs = request->has_step() ? WithStep(view->checkpoints, request->step())
                                     : view->checkpoints;
        }
        if (!view || (request->has_step() && refs.empty())) {
          return call->Finish(view ? NoSuchStep(request->job_id(), request->step())
                                   : NoSuchJob(request->job_id()));
        }
        if (const grpc::Status own = CheckOwn(call->caller(), view->status); !own.ok()) {
          return call->Finish(own);
        }
        CheckpointCheck::Hearer hearer;
        hearer.tell = [refs, response](size_t index, const CheckpointCheck::Verdict& verdict) {
          v1::CheckedCheckpoint& checked = *response->add_checkpoints();
          *checked.mutable_checkpoint() = refs[index];
          if (!verdict.status.ok()) checked.set_error(Message(verdict.status));
          return CheckpointCheck::Next::kGoOn;
        };
        hearer.wanted = [context] { return !context->IsCancelled(); };
        hearer.end = [call](const Status& status) { call->Finish(ToGrpc(status, "UNAVAILABLE")); };
        CheckpointCheck::Begin(disk_, refs, std::move(hearer));
      });
}

grpc::ServerWriteReactor<v1::FilePiece>* JobsService::GetCheckpoint(
    grpc::CallbackServerContext* context, const v1::GetCheckpointRequest* request) {
  OpenCalls::Entry entry = calls_.Enter(context, {"Jobs/GetCheckpoint", CallKind::kLasting});
  if (!entry.call) return new Refused<v1::FilePiece>(StatusOf(entry.refusal));
  const Caller caller = entry.call->caller();
  const auto refuse = [&entry](const grpc::Status& status) {
    return new Refused<v1::FilePiece>(status, std::move(entry.call));
  };
  const StatusBoard::View view = board_.Find(request->job_id());
  if (!view) return refuse(NoSuchJob(request->job_id()));
  if (const grpc::Status own = CheckOwn(caller, view->status); !own.ok()) {
    return refuse(own);
  }
  const std::vector<v1::CheckpointRef> refs =
      request->has_step() ? WithStep(view->checkpoints, request->step()) : view->checkpoints;
  if (refs.empty()) {
    return refuse(request->has_step() ? NoSuchStep(request->job_id(), request->step())
                                      : NoSuchCheckpoint(request->job_id(), "checkpoint yet"));
  }
  const auto download =
      std::make_shared<CheckpointDownload>(disk_, refs.back(), std::move(entry.call));
  if (caller.role != v1::ROLE_WORKER) {
    download->Begin([](const CheckpointDownload::Permit& permit) { permit(grpc::Status::OK); });
  } else {
    download->Begin([&](const CheckpointDownload::Permit& permit) {
      control_.Ask(FetchAsked{caller.identity->name, JobId(request->job_id())},
                   [permit](const Reply& reply) { permit(StatusOf(reply)); });
    });
  }
  return download.get();
}

}  // namespace ringmaster::coordinator
