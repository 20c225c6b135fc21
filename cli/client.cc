#include "cli/client.h"

#include <grpcpp/client_context.h>
#include <grpcpp/support/channel_arguments.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "cli/read_stream.h"
#include "common/amount.h"
#include "common/pki/credential_folder.h"
#include "common/pki/key.h"
#include "common/rpc/clean_strings.h"
#include "common/rpc/renewal.h"
#include "common/rpc/rpc_status.h"
#include "common/text.h"

namespace ringmaster::cli {
namespace {

// Of reading whole checkpoints: a slow link and a large state may take hours.
constexpr std::chrono::hours kCheckpointDeadline(24);
constexpr std::chrono::minutes kPieceDeadline(5);         // between two pieces of a download
constexpr std::chrono::milliseconds kSilentLimit(1'000);  // more, of a port that was silent so far
constexpr std::chrono::milliseconds kRenewLimit(5'000);
constexpr char kLogin[] =
    "`ringctl login TOKEN` makes you known there (`ringctl token create` on the coordinator's host "
    "prints one); on that host itself it is `ringctl --coordinator unix:DATA_DIR/ringmaster.sock`";
constexpr char kLoginAgain[] =
    "`ringctl login TOKEN` with a new token (`ringctl token create` on the coordinator's host)";

// CANCELLED is a server that shuts down: this side cancels only what it has read enough of.
bool IsTransport(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE ||
         status.error_code() == grpc::StatusCode::CANCELLED ||
         status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
}

pki::Time WallTime() {
  return std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
}

grpc::ChannelArguments Arguments() {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return arguments;
}

// Where this user is logged in, for who has mistyped an address: contexts are found by its letters.
std::string Elsewhere(const Contexts& contexts) {
  const auto known = contexts.List();
  std::string text;
  for (const Context& one : known.ok() ? *known : std::vector<Context>()) {
    text += fmt::format("{}{} ({})", text.empty() ? "; you are at " : ", ",
                        one.coordinator.ToString(), one.name);
  }
  return text;
}

Status NotLoggedIn(const std::string& coordinator, const std::string& why) {
  return FailedPrecondition(
      "you are not logged in at {}, which is not this host, and nothing was sent there{}; {}",
      coordinator, why, kLogin);
}

}  // namespace

StatusOr<Client> Client::Create(const std::string& coordinator,
                                std::chrono::milliseconds patience) {
  RING_ASSIGN_OR_RETURN(Way way, WayTo(coordinator));
  if (!way.context) return Client(std::move(way), patience);
  const std::string& folder = way.context->credentials;
  const Status renewed = RenewWhenDue(way, std::min(patience, kRenewLimit));
  RING_RETURN_IF_ERROR(pki::SelfCheck(
      folder, WallTime(),
      renewed.ok() ? kLoginAgain
                   : fmt::format("it cannot be renewed: {}; {}", Message(renewed), kLoginAgain)));
  RING_ASSIGN_OR_RETURN(const pki::Credentials own, pki::LoadCredentials(folder));
  way.cluster = own.identity.cluster;
  return Client(std::move(way), patience);
}

StatusOr<Client::Way> Client::WayTo(const std::string& coordinator) {
  Way way{coordinator};
  RING_ASSIGN_OR_RETURN(way.address, ParseCoordinator(coordinator, "--coordinator"));
  // Where the Dialer would not use them no contexts are looked at: they may be broken.
  if (IsLoopback(way.address.host)) return way;
  const auto contexts = Contexts::OfUser();
  if (!contexts.ok()) return NotLoggedIn(coordinator, ": " + Message(contexts.status()));
  RING_ASSIGN_OR_RETURN(way.context, contexts->Of(way.address));
  if (!way.context) return NotLoggedIn(coordinator, Elsewhere(*contexts));
  RING_RETURN_IF_ERROR(pki::ForbidDumps());
  way.dialer = Dialer(way.context->credentials);
  return way;
}

// Whoever else has the lock renews it already, or has just done so: who has nothing but one that
// ended waits for theirs.
Status Client::RenewWhenDue(const Way& way, std::chrono::milliseconds patience) {
  const std::string& folder = way.context->credentials;
  const auto due = [&folder]() -> std::optional<pki::Credentials> {
    auto own = pki::LoadCredentials(folder);
    if (!own.ok() || !IsRenewalDue(*own, WallTime())) return std::nullopt;
    return *std::move(own);
  };
  const auto before = due();
  if (!before) return absl::OkStatus();
  const Clock::time_point end = Clock::now() + patience;
  const bool ended = WallTime() > before->not_after();
  RING_ASSIGN_OR_RETURN(const Contexts contexts, Contexts::OfUser());
  RING_ASSIGN_OR_RETURN(
      const auto lock,
      contexts.Lock(way.context->name, ended ? patience : std::chrono::milliseconds(0)));
  const auto own = due();
  if (!own) return absl::OkStatus();
  grpc::ClientContext call;
  call.set_deadline(end);
  return RenewCredentials({folder, way.address, Client(way, patience).channel_}, *own, WallTime(),
                          &call)
      .status();
}

Client::Client(Way way, std::chrono::milliseconds patience)
    : way_(std::move(way)),
      patience_(patience),
      channel_(way_.dialer.Dial(way_.address, {.kind = pki::Kind::kCoordinator}, Arguments())),
      stub_(v1::Jobs::NewStub(channel_)),
      bench_(v1::Bench::NewStub(channel_)),
      access_(v1::Access::NewStub(channel_)) {}

std::string Client::Refusal(grpc::StatusCode end) const {
  if (!way_.cluster.empty()) return "";
  const bool silent = end == grpc::StatusCode::DEADLINE_EXCEEDED;
  return RefusalAt(way_.address, silent ? std::min(patience_, kSilentLimit) : patience_);
}

Status Client::Unreachable(const std::string& why) const {
  if (!way_.cluster.empty()) {
    return Error(absl::StatusCode::kUnavailable,
                 "no coordinator of cluster {} answers at {} ({}); is it running? If it does not "
                 "take your certificate, `ringctl login TOKEN` with a new token gets another one",
                 way_.cluster, way_.coordinator, why);
  }
  return Error(absl::StatusCode::kUnavailable,
               "no coordinator answers at {} ({}); start one with `ringctl up` or `ringmaster`, or "
               "name another with --coordinator or RINGMASTER_COORDINATOR",
               way_.coordinator, why);
}

Status Client::Translate(const grpc::Status& status) const {
  if (!IsTransport(status)) return FromGrpc(status);
  const std::string reason = ErrorReason(status);
  const bool stopping = reason == "UNAVAILABLE";  // it says so itself, and will be back or not
  if (!reason.empty() && !stopping) return Internal("{}", Message(FromGrpc(status)));
  const std::string refusal = stopping ? "" : Refusal(status.error_code());
  if (!refusal.empty()) {
    return Error(absl::StatusCode::kPermissionDenied, "the coordinator at {} refuses you: {}",
                 way_.coordinator, refusal);
  }
  return Unreachable(Message(FromGrpc(status)));
}

Status Client::Translate(const grpc::Status& status, const std::string& job_id) {
  if (status.error_code() != grpc::StatusCode::NOT_FOUND) return Translate(status);
  std::vector<std::string> ids;
  std::string guess;
  if (const auto jobs = List(); jobs.ok()) {
    for (const v1::JobStatus& job : jobs->jobs()) {
      if (job.job_id() == job_id) return Translate(status);  // something else is missing
      ids.push_back(job.job_id());
      if (job.name() == job_id && guess.empty()) guess = job.job_id();  // the newest of this name
    }
  }
  if (guess.empty()) guess = Nearest(job_id, ids);
  return Error(
      absl::StatusCode::kNotFound, "{}; {}", Message(FromGrpc(status)),
      guess.empty() ? "`ringctl ps` lists all jobs" : fmt::format("did you mean {}?", guess));
}

StatusOr<v1::SubmitResponse> Client::Submit(const v1::SubmitRequest& request,
                                            std::chrono::milliseconds patience) {
  const Clock::time_point end = Clock::now() + patience;
  for (;;) {
    v1::SubmitResponse response;
    grpc::ClientContext context;
    context.set_deadline(end);
    context.set_wait_for_ready(true);
    const grpc::Status status = stub_->Submit(&context, request, &response);
    CleanStrings(&response, kMaxText);
    if (status.ok()) return response;
    // A connection that broke inside the call: the same key makes another try harmless.
    const bool again = status.error_code() == grpc::StatusCode::UNAVAILABLE &&
                       ErrorReason(status).empty() && Clock::now() < end;
    if (!again) return Translate(status, request.resume_job() + request.like_job());
  }
}

template <typename Request, typename Response>
grpc::Status Client::Call(grpc::Status (v1::Jobs::Stub::*method)(grpc::ClientContext*,
                                                                 const Request&, Response*),
                          const Request& request, Response* response,
                          std::chrono::milliseconds limit) {
  grpc::ClientContext context;
  context.set_deadline(Clock::now() + limit);
  const grpc::Status status = (stub_.get()->*method)(&context, request, response);
  CleanStrings(response, kMaxText);
  return status;
}

StatusOr<v1::ListResponse> Client::List() {
  v1::ListResponse response;
  RING_RETURN_IF_ERROR(Translate(Call(&v1::Jobs::Stub::List, v1::ListRequest(), &response)));
  return response;
}

StatusOr<std::string> Client::IdOf(const std::string& word) {
  if (word != "last") return word;
  RING_ASSIGN_OR_RETURN(const v1::ListResponse jobs, List());
  if (jobs.jobs_size() > 0) return jobs.jobs(0).job_id();
  return Error(absl::StatusCode::kNotFound, "there is no job yet: `ringctl submit` makes one");
}

StatusOr<v1::JobStatus> Client::Get(const std::string& job_id) {
  v1::GetRequest request;
  request.set_job_id(job_id);
  v1::JobStatus response;
  RING_RETURN_IF_ERROR(Translate(Call(&v1::Jobs::Stub::Get, request, &response), job_id));
  return response;
}

StatusOr<v1::Graph> Client::GetGraph(const std::string& job_id) {
  v1::GetRequest request;
  request.set_job_id(job_id);
  v1::Graph response;
  RING_RETURN_IF_ERROR(Translate(Call(&v1::Jobs::Stub::GetGraph, request, &response), job_id));
  return response;
}

Status Client::Cancel(const std::string& job_id) {
  v1::CancelRequest request;
  request.set_job_id(job_id);
  v1::CancelResponse response;
  return Translate(Call(&v1::Jobs::Stub::Cancel, request, &response), job_id);
}

Status Client::Remove(const std::string& job_id) {
  v1::RemoveRequest request;
  request.set_job_id(job_id);
  v1::RemoveResponse response;
  return Translate(Call(&v1::Jobs::Stub::Remove, request, &response));  // no other is suggested
}

StatusOr<v1::WhyResponse> Client::Why(const std::string& job_id) {
  v1::WhyRequest request;
  request.set_job_id(job_id);
  v1::WhyResponse response;
  RING_RETURN_IF_ERROR(Translate(Call(&v1::Jobs::Stub::Why, request, &response), job_id));
  return response;
}

StatusOr<v1::GetMetricsResponse> Client::GetMetrics(const v1::GetMetricsRequest& request) {
  v1::GetMetricsResponse response;
  RING_RETURN_IF_ERROR(
      Translate(Call(&v1::Jobs::Stub::GetMetrics, request, &response), request.job_id()));
  return response;
}

StatusOr<v1::ListEventsResponse> Client::ListEvents(const std::string& job_id) {
  v1::ListEventsRequest request;
  request.set_job_id(job_id);
  v1::ListEventsResponse response;
  RING_RETURN_IF_ERROR(Translate(Call(&v1::Jobs::Stub::ListEvents, request, &response), job_id));
  return response;
}

StatusOr<v1::ListWorkersResponse> Client::ListWorkers() {
  v1::ListWorkersResponse response;
  RING_RETURN_IF_ERROR(
      Translate(Call(&v1::Jobs::Stub::ListWorkers, v1::ListWorkersRequest(), &response)));
  return response;
}

StatusOr<v1::ListCheckpointsResponse> Client::ListCheckpoints(const std::string& job_id) {
  v1::ListCheckpointsRequest request;
  request.set_job_id(job_id);
  v1::ListCheckpointsResponse response;
  RING_RETURN_IF_ERROR(
      Translate(Call(&v1::Jobs::Stub::ListCheckpoints, request, &response), job_id));
  return response;
}

StatusOr<v1::AllReduceReport> Client::BenchAllReduce(const v1::AllReduceRequest& request,
                                                     std::chrono::milliseconds limit) {
  v1::AllReduceReport response;
  grpc::ClientContext context;
  context.set_deadline(Clock::now() + limit);
  const grpc::Status status = bench_->AllReduce(&context, request, &response);
  CleanStrings(&response, kMaxText);
  if (status.ok()) return response;
  const bool late = status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
  if (late && ErrorReason(status).empty() && channel_->GetState(false) == GRPC_CHANNEL_READY) {
    return Error(absl::StatusCode::kAborted,
                 "the measurement took longer than {} and was given up; give --limit more, or "
                 "measure smaller --sizes or fewer --rounds",
                 ExactDuration(limit));
  }
  return Translate(status);
}

StatusOr<v1::DrainWorkerResponse> Client::DrainWorker(const v1::DrainWorkerRequest& request) {
  v1::DrainWorkerResponse response;
  const grpc::Status status = Call(&v1::Jobs::Stub::DrainWorker, request, &response);
  if (status.ok()) return response;
  if (status.error_code() != grpc::StatusCode::NOT_FOUND) return Translate(status);
  std::vector<std::string> names;
  if (const auto workers = ListWorkers(); workers.ok()) {
    for (const v1::WorkerStatus& worker : workers->workers()) names.push_back(worker.name());
  }
  const std::string guess = Nearest(request.worker(), names);
  return Error(absl::StatusCode::kNotFound, "{}; {}", Message(FromGrpc(status)),
               guess.empty() ? "`ringctl workers` lists those that are attached"
                             : fmt::format("did you mean {}?", guess));
}

StatusOr<v1::VerifyCheckpointsResponse> Client::VerifyCheckpoints(
    const v1::VerifyCheckpointsRequest& request) {
  v1::VerifyCheckpointsResponse response;
  RING_RETURN_IF_ERROR(
      Translate(Call(&v1::Jobs::Stub::VerifyCheckpoints, request, &response, kCheckpointDeadline),
                request.job_id()));
  return response;
}

Status Client::GetCheckpoint(const std::string& job_id, uint64_t step,
                             const std::function<Status(const v1::FilePiece&)>& sink) {
  v1::GetCheckpointRequest request;
  request.set_job_id(job_id);
  request.set_step(step);
  Status sunk;
  Clock::time_point came = Clock::now();
  const auto end = ReadStream<v1::FilePiece>(
      came + kCheckpointDeadline,
      [&](grpc::ClientContext* context, grpc::CompletionQueue* queue) {
        return stub_->PrepareAsyncGetCheckpoint(context, request, queue);
      },
      [&] { return sunk.ok() && Clock::now() - came < kPieceDeadline; },
      [&](const v1::FilePiece& piece) {
        if (sunk.ok()) sunk = sink(piece);
        came = Clock::now();
      });
  if (!sunk.ok()) return sunk;
  if (end.enough) {
    return Error(absl::StatusCode::kAborted,
                 "no more of the checkpoint of step {} of {} came within {}; try again", step,
                 job_id, ExactDuration(kPieceDeadline));
  }
  return Translate(end.status, job_id);
}

Status Client::Watch(const std::string& job_id, Clock::time_point deadline, const OnTick& on_tick,
                     const std::function<void(const v1::JobStatus&)>& sink) {
  v1::WatchRequest request;
  request.set_job_id(job_id);
  const auto end = ReadStream<v1::JobStatus>(
      deadline,
      [&](grpc::ClientContext* context, grpc::CompletionQueue* queue) {
        return stub_->PrepareAsyncWatch(context, request, queue);
      },
      on_tick, sink);
  return end.enough ? end.why : Translate(end.status, job_id);
}

Status Client::Logs(const v1::LogsRequest& request, Clock::time_point deadline,
                    const OnTick& on_tick, const std::function<void(const v1::LogLine&)>& sink) {
  const auto end = ReadStream<v1::LogLine>(
      deadline,
      [&](grpc::ClientContext* context, grpc::CompletionQueue* queue) {
        return stub_->PrepareAsyncLogs(context, request, queue);
      },
      on_tick, sink);
  return end.enough ? end.why : Translate(end.status, request.job_id());
}

template <typename Request, typename Response>
StatusOr<Response> Client::AskAccess(grpc::Status (v1::Access::Stub::*method)(grpc::ClientContext*,
                                                                              const Request&,
                                                                              Response*),
                                     const Request& request) {
  Response response;
  grpc::ClientContext context;
  context.set_deadline(Clock::now() + patience_);
  RING_RETURN_IF_ERROR(Translate((access_.get()->*method)(&context, request, &response)));
  CleanStrings(&response, kMaxText);
  return response;
}

StatusOr<v1::CreateTokenResponse> Client::CreateToken(const v1::CreateTokenRequest& request) {
  return AskAccess(&v1::Access::Stub::CreateToken, request);
}

StatusOr<v1::ListTokensResponse> Client::ListTokens() {
  return AskAccess(&v1::Access::Stub::ListTokens, v1::ListTokensRequest());
}

Status Client::RevokeToken(const std::string& id) {
  v1::RevokeTokenRequest request;
  request.set_id(id);
  return AskAccess(&v1::Access::Stub::RevokeToken, request).status();
}

StatusOr<v1::ListIdentitiesResponse> Client::ListIdentities() {
  return AskAccess(&v1::Access::Stub::ListIdentities, v1::ListIdentitiesRequest());
}

Status Client::RevokeIdentity(const v1::RevokeIdentityRequest& request) {
  return AskAccess(&v1::Access::Stub::RevokeIdentity, request).status();
}

StatusOr<v1::ListAuditResponse> Client::ListAudit(const v1::ListAuditRequest& request) {
  return AskAccess(&v1::Access::Stub::ListAudit, request);
}

StatusOr<v1::WhoAmIResponse> Client::WhoAmI() {
  return AskAccess(&v1::Access::Stub::WhoAmI, v1::WhoAmIRequest());
}

StatusOr<v1::ListAuthoritiesResponse> Client::ListAuthorities() {
  return AskAccess(&v1::Access::Stub::ListAuthorities, v1::ListAuthoritiesRequest());
}

StatusOr<v1::ListAuthoritiesResponse> Client::RotateAuthority() {
  return AskAccess(&v1::Access::Stub::RotateAuthority, v1::RotateAuthorityRequest());
}

bool Client::WaitUntilConnected(Clock::time_point deadline) {
  return channel_->WaitForConnected(deadline);
}

}  // namespace ringmaster::cli
