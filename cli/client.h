// The coordinator as ringctl sees it: the Jobs, Bench and Access services with a deadline on every
// call, and errors that say what to try. Thread-compatible.
//
// UNAVAILABLE and DEADLINE_EXCEEDED always mean that no coordinator answered, or that it is
// stopping; any other error of the coordinator itself with one of these codes comes out as
// INTERNAL.
#pragma once

#include <grpcpp/channel.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cli/context.h"
#include "common/net/address.h"
#include "common/rpc/channel.h"
#include "common/status.h"
#include "ringmaster/v1/access.grpc.pb.h"
#include "ringmaster/v1/bench.grpc.pb.h"
#include "ringmaster/v1/jobs.grpc.pb.h"

namespace ringmaster::cli {

class Client {
 public:
  using Clock = std::chrono::system_clock;  // what gRPC's deadlines are made of

  // Called several times a second while a stream is open; false ends it.
  using OnTick = std::function<bool()>;

  // Connects lazily: on this host without TLS, elsewhere as whoever this user is in the context of
  // that address (cli/context.h). INVALID_ARGUMENT: it is no address. NOT_FOUND, PERMISSION_DENIED,
  // FAILED_PRECONDITION, UNAUTHENTICATED: there is no such context, or its credentials cannot be
  // used, why, and what to do; nothing was sent. A certificate past two thirds of its life is
  // renewed before, or by another ringctl that does so already; when that fails the old one is
  // used, as long as it is good. `patience` bounds each call that is not a stream, and behind one
  // that was broken off the question why.
  static StatusOr<Client> Create(const std::string& coordinator,
                                 std::chrono::milliseconds patience = std::chrono::seconds(10));

  // Waits for the coordinator and retries with the same key for `patience` in all.
  StatusOr<v1::SubmitResponse> Submit(const v1::SubmitRequest& request,
                                      std::chrono::milliseconds patience);
  StatusOr<v1::ListResponse> List();
  StatusOr<v1::JobStatus> Get(const std::string& job_id);
  StatusOr<v1::Graph> GetGraph(const std::string& job_id);
  Status Cancel(const std::string& job_id);
  Status Remove(const std::string& job_id);
  StatusOr<v1::WhyResponse> Why(const std::string& job_id);
  StatusOr<v1::ListWorkersResponse> ListWorkers();
  StatusOr<v1::DrainWorkerResponse> DrainWorker(const v1::DrainWorkerRequest& request);
  // Takes as long as the measurement, at most `limit`.
  StatusOr<v1::AllReduceReport> BenchAllReduce(const v1::AllReduceRequest& request,
                                               std::chrono::milliseconds limit);
  StatusOr<v1::ListCheckpointsResponse> ListCheckpoints(const std::string& job_id);
  // Takes as long as reading all of them.
  StatusOr<v1::VerifyCheckpointsResponse> VerifyCheckpoints(
      const v1::VerifyCheckpointsRequest& request);
  // Hands every piece of a checkpoint's files to `sink` until it returns an error, which is passed
  // on.
  Status GetCheckpoint(const std::string& job_id, uint64_t step,
                       const std::function<Status(const v1::FilePiece&)>& sink);
  // `last` is the newest job; every other word is an id as it stands. NOT_FOUND without any job.
  StatusOr<std::string> IdOf(const std::string& word);
  StatusOr<v1::ListEventsResponse> ListEvents(const std::string& job_id);
  // One page.
  StatusOr<v1::GetMetricsResponse> GetMetrics(const v1::GetMetricsRequest& request);
  // Both hand every message to `sink` until the stream ends or `deadline` passes: OK in both cases
  // when anything came. CANCELLED when `on_tick` said so.
  Status Watch(const std::string& job_id, Clock::time_point deadline, const OnTick& on_tick,
               const std::function<void(const v1::JobStatus&)>& sink);
  Status Logs(const v1::LogsRequest& request, Clock::time_point deadline, const OnTick& on_tick,
              const std::function<void(const v1::LogLine&)>& sink);

  StatusOr<v1::CreateTokenResponse> CreateToken(const v1::CreateTokenRequest& request);
  StatusOr<v1::ListTokensResponse> ListTokens();
  Status RevokeToken(const std::string& id);
  StatusOr<v1::ListIdentitiesResponse> ListIdentities();
  Status RevokeIdentity(const v1::RevokeIdentityRequest& request);
  StatusOr<v1::ListAuditResponse> ListAudit(const v1::ListAuditRequest& request);
  StatusOr<v1::WhoAmIResponse> WhoAmI();
  StatusOr<v1::ListAuthoritiesResponse> ListAuthorities();
  StatusOr<v1::ListAuthoritiesResponse> RotateAuthority();

  // Blocks until connected; false at `deadline`.
  bool WaitUntilConnected(Clock::time_point deadline);
  [[nodiscard]] const std::string& coordinator() const { return way_.coordinator; }

 private:
  // How it is reached: with the credentials of `context`, or, on this host, without TLS.
  struct Way {
    std::string coordinator;
    Address address;
    std::optional<Context> context;
    Dialer dialer;
    std::string cluster;  // that is at its end; empty without TLS
  };
  static StatusOr<Way> WayTo(const std::string& coordinator);
  static Status RenewWhenDue(const Way& way, std::chrono::milliseconds patience);
  Client(Way way, std::chrono::milliseconds patience);
  template <typename Request, typename Response>
  grpc::Status Call(grpc::Status (v1::Jobs::Stub::*method)(grpc::ClientContext*, const Request&,
                                                           Response*),
                    const Request& request, Response* response) {
    return Call(method, request, response, patience_);
  }
  template <typename Request, typename Response>
  grpc::Status Call(grpc::Status (v1::Jobs::Stub::*method)(grpc::ClientContext*, const Request&,
                                                           Response*),
                    const Request& request, Response* response, std::chrono::milliseconds limit);
  template <typename Request, typename Response>
  StatusOr<Response> AskAccess(grpc::Status (v1::Access::Stub::*method)(grpc::ClientContext*,
                                                                        const Request&, Response*),
                               const Request& request);
  Status Translate(const grpc::Status& status) const;
  // What a port that does not let in this user says, at which a call ended so; empty: nothing.
  [[nodiscard]] std::string Refusal(grpc::StatusCode end) const;
  [[nodiscard]] Status Unreachable(const std::string& why) const;
  // NOT_FOUND gains the job that was probably meant.
  Status Translate(const grpc::Status& status, const std::string& job_id);

  Way way_;
  std::chrono::milliseconds patience_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Jobs::Stub> stub_;
  std::unique_ptr<v1::Bench::Stub> bench_;
  std::unique_ptr<v1::Access::Stub> access_;
};

}  // namespace ringmaster::cli
