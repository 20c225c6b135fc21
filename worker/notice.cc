#include "worker/notice.h"

#include <pthread.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/text.h"

namespace ringmaster::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::chrono::seconds kBetween{2};
constexpr std::chrono::seconds kAnswerLimit{5};
constexpr size_t kMostAnswer = 64 << 10;
constexpr size_t kMostShown = 200;

// As the three clouds document them: AWS EC2 "Spot Instance interruption notices" and "Use IMDSv2";
// Google Compute Engine "Detect if a VM is preempted"; Azure "Scheduled Events for Linux VMs".
constexpr char kAwsToken[] = "/latest/api/token";
constexpr char kAwsTokenLife[] = "X-aws-ec2-metadata-token-ttl-seconds: 21600";
constexpr char kAwsAction[] = "/latest/meta-data/spot/instance-action";
constexpr char kGcpPreempted[] = "/computeMetadata/v1/instance/preempted";
constexpr char kGcpHeader[] = "Metadata-Flavor: Google";
constexpr char kAzureEvents[] = "/metadata/scheduledevents?api-version=2020-07-01";
constexpr char kAzureName[] = "/metadata/instance/compute/name?api-version=2021-02-01&format=text";
constexpr char kAzureHeader[] = "Metadata: true";

const char* NameOf(Cloud cloud) {
  switch (cloud) {
    case Cloud::kAws:
      return "AWS";
    case Cloud::kGcp:
      return "Google";
    case Cloud::kAzure:
      return "Azure";
  }
  return "";
}

HttpOptions MetadataOptions() {
  HttpOptions options;
  options.allow_http = options.allow_private = true;  // that is where the service is
  options.connections = 1;
  options.attempts = 1;
  options.connect_timeout = milliseconds(2'000);
  return options;
}

Status NotUnderstood(Cloud cloud, const HttpResponse& response) {
  return Error(absl::StatusCode::kUnknown, "the metadata service of {} answered {}: {}",
               NameOf(cloud), response.status, OneLine(response.body, kMostShown));
}

// A member of an object as text; empty: there is none.
std::string TextIn(const nlohmann::json& object, const char* member) {
  if (!object.is_object()) return "";
  const auto found = object.find(member);
  return found != object.end() && found->is_string()
             ? OneLine(found->get<std::string>(), kMostShown)
             : "";
}

StatusOr<std::string> AwsNotice(const HttpResponse& response) {
  if (response.status == 404) return std::string();
  const auto said = nlohmann::json::parse(response.body, nullptr, false);
  const std::string action = TextIn(said, "action");
  if (response.status != 200 || action.empty()) return NotUnderstood(Cloud::kAws, response);
  return fmt::format("preemption notice of AWS: {} at {}", action, TextIn(said, "time"));
}

StatusOr<std::string> GcpNotice(const HttpResponse& response) {
  const std::string word = response.body.substr(0, response.body.find_last_not_of(" \r\n") + 1);
  if (response.status != 200 || (word != "TRUE" && word != "FALSE")) {
    return NotUnderstood(Cloud::kGcp, response);
  }
  return word == "FALSE" ? std::string() : "preemption notice of Google";
}

bool Concerns(const nlohmann::json& event, const std::string& own_name) {
  if (TextIn(event, "EventType") != "Preempt") return false;
  const auto resources = event.find("Resources");
  return resources != event.end() && resources->is_array() &&
         std::any_of(resources->begin(), resources->end(), [&](const nlohmann::json& name) {
           return name.is_string() && name.get<std::string>() == own_name;
         });
}

// Its events are of all hosts of a set, so they are told by name.
StatusOr<std::string> AzureNotice(const HttpResponse& response, const std::string& own_name) {
  const auto said = nlohmann::json::parse(response.body, nullptr, false);
  const bool good = response.status == 200 && said.is_object() && said.contains("Events") &&
                    said["Events"].is_array();
  if (!good) return NotUnderstood(Cloud::kAzure, response);
  for (const nlohmann::json& event : said["Events"]) {
    if (!Concerns(event, own_name)) continue;
    return fmt::format("preemption notice of Azure: not before {}", TextIn(event, "NotBefore"));
  }
  return std::string();
}

}  // namespace

StatusOr<std::string> NoticeIn(Cloud cloud, const HttpResponse& response,
                               const std::string& own_name) {
  switch (cloud) {
    case Cloud::kAws:
      return AwsNotice(response);
    case Cloud::kGcp:
      return GcpNotice(response);
    case Cloud::kAzure:
      return AzureNotice(response, own_name);
  }
  return Internal("no such cloud");
}

NoticeWatch::NoticeWatch(const std::optional<NoticeOptions>& options)
    : options_(options), http_(MetadataOptions()) {
  if (options_) cloud_ = options_->cloud;
}

void NoticeWatch::Start() {
  if (!options_) return;
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
  pthread_setname_np(thread_.native_handle(), "notice");
}

void NoticeWatch::Stop() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  {
    MutexLock lock(mu_);
    changed_.NotifyAll();
  }
  thread_.join();
}

std::string NoticeWatch::notice() const {
  MutexLock lock(mu_);
  return notice_;
}

void NoticeWatch::Run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const StatusOr<std::string> notice = Look(stop);
    if (notice.ok()) said_.clear();
    if (!notice.ok() && !stop.stop_requested()) SayOnce(notice.status());
    const bool leaves = notice.ok() && !notice->empty();
    if (leaves) spdlog::warn("{}: this worker leaves", *notice);
    MutexLock lock(mu_);
    if (leaves) {
      notice_ = *notice;
      return;  // it is not taken back
    }
    changed_.WaitUntil(mu_, steady_clock::now() + kBetween,
                       [&stop]() { return stop.stop_requested(); });
  }
}

void NoticeWatch::SayOnce(const Status& status) {
  if (std::exchange(said_, Message(status)).empty()) {
    spdlog::warn(
        "--drain-on-notice: no metadata service is understood at {}: {}; it goes on asking",
        options_->metadata.ToString(), Message(status));
  }
}

StatusOr<std::string> NoticeWatch::Look(const std::stop_token& stop) {
  if (cloud_) return Ask(*cloud_, stop);
  StatusOr<std::string> notice;
  for (const Cloud cloud : {Cloud::kAws, Cloud::kGcp, Cloud::kAzure}) {
    notice = Ask(cloud, stop);
    if (!notice.ok()) continue;
    spdlog::info("preemption notices are those of {}", NameOf(cloud));
    cloud_ = cloud;
    break;
  }
  return notice;
}

StatusOr<std::string> NoticeWatch::Ask(Cloud cloud, const std::stop_token& stop) {
  using Method = HttpRequest::Method;
  if (cloud == Cloud::kGcp) {
    RING_ASSIGN_OR_RETURN(const HttpResponse said,
                          Request(Method::kGet, kGcpPreempted, kGcpHeader, stop));
    return NoticeIn(cloud, said, "");
  }
  if (cloud == Cloud::kAzure) {
    if (own_name_.empty()) {
      RING_ASSIGN_OR_RETURN(const HttpResponse said,
                            Request(Method::kGet, kAzureName, kAzureHeader, stop));
      if (said.status != 200 || said.body.empty()) return NotUnderstood(cloud, said);
      own_name_ = said.body;
    }
    RING_ASSIGN_OR_RETURN(const HttpResponse said,
                          Request(Method::kGet, kAzureEvents, kAzureHeader, stop));
    return NoticeIn(cloud, said, own_name_);
  }
  const bool fresh = token_.empty();
  if (fresh) {
    RING_ASSIGN_OR_RETURN(const HttpResponse said,
                          Request(Method::kPut, kAwsToken, kAwsTokenLife, stop));
    if (said.status != 200 || said.body.empty() || OneLine(said.body) != said.body) {
      return NotUnderstood(cloud, said);
    }
    token_ = said.body;
  }
  RING_ASSIGN_OR_RETURN(
      const HttpResponse said,
      Request(Method::kGet, kAwsAction, "X-aws-ec2-metadata-token: " + token_, stop));
  if (said.status == 401) {
    token_.clear();
    if (!fresh) return Ask(cloud, stop);  // it had expired
  }
  return NoticeIn(cloud, said, "");
}

StatusOr<HttpResponse> NoticeWatch::Request(HttpRequest::Method method, const std::string& path,
                                            const std::string& header,
                                            const std::stop_token& stop) {
  HttpRequest request;
  request.method = method;
  request.url = "http://" + options_->metadata.ToString() + path;
  request.headers = {header};
  request.max_body = kMostAnswer;
  return http_.Do(request, {steady_clock::now() + kAnswerLimit, stop});
}

}  // namespace ringmaster::worker
