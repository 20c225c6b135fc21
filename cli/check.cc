#include "cli/check.h"

#include <fmt/ranges.h>
#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "cli/show/names.h"
#include "common/amount.h"
#include "common/build_id.h"
#include "common/text.h"

namespace ringmaster::cli {
namespace {

using google::protobuf::util::TimeUtil;
using std::chrono::milliseconds;

// Less than this on a disk is used up within hours, by logs alone.
constexpr uint64_t kLittleSpace = uint64_t{1} << 30;
constexpr uint64_t kNoSpace = uint64_t{64} << 20;
// Beside two kept checkpoints a third one is written before the oldest goes.
constexpr uint64_t kCheckpointsAtOnce = 3;
constexpr size_t kMostText = 300;  // of what a worker says

std::string Shown(milliseconds duration) {
  const int64_t ms = std::abs(duration.count());
  return ms < 10'000 ? fmt::format("{} ms", ms) : WholeSeconds(static_cast<double>(ms) / 1e3);
}

Finding ClockFinding(const std::string& who, milliseconds ahead, const std::string& host) {
  Finding finding{Verdict::kOk, "clock", who};
  finding.found = fmt::format("{} {} the coordinator's", Shown(ahead),
                              ahead.count() < 0 ? "behind" : "ahead of");
  const milliseconds off(std::abs(ahead.count()));
  if (off < kClockWarning) return finding;
  finding.verdict = off < kClockFailure ? Verdict::kWarning : Verdict::kFailed;
  finding.remedy = fmt::format(
      "certificates and tokens go by the clock: set that of {} and of the coordinator's host by "
      "NTP (`timedatectl set-ntp true`, or chrony)",
      host);
  return finding;
}

// What jobs need workers to have in common, in words.
std::string ClassName(const v1::NumericsClass& numerics) {
  return fmt::format("{} {} {}, {} a core, compute {:.12}", numerics.backend(),
                     numerics.device_model(), numerics.instruction_set(),
                     Count(numerics.threads_per_core(), "thread"), numerics.compute_id());
}

Finding CheckClasses(const v1::ListWorkersResponse& workers) {
  std::map<std::string, std::vector<std::string>> classes;
  std::map<std::string, std::string> names;
  for (const v1::WorkerStatus& worker : workers.workers()) {
    // Maps in it have no order on the wire; the printed form has.
    const std::string key = worker.numerics_class().ShortDebugString();
    classes[key].push_back(worker.name());
    names[key] = ClassName(worker.numerics_class());
  }
  if (classes.size() == 1) {
    return {Verdict::kOk, "numerics", "", "all workers are of one class: " + names.begin()->second};
  }
  std::string found = fmt::format("{} classes", classes.size());
  for (const auto& [key, members] : classes) {
    found += fmt::format("; {}: {}", fmt::join(members, ", "), names[key]);
  }
  return {
      Verdict::kWarning, "numerics", "", found,
      "the workers of one job are of one class, unless it says workers: {mix: fixed}: install one "
      "release on all hosts, and start all workers with the same --device and "
      "--threads-per-core, or let jobs mix classes"};
}

Finding CheckCertificate(const std::string& worker, const v1::ListIdentitiesResponse& identities,
                         int64_t unix_ms) {
  Finding finding{Verdict::kSkipped, "certificate", worker};
  finding.found = "it has none: it is on the coordinator's host";
  for (const v1::Identity& identity : identities.identities()) {
    if (identity.role() != v1::ROLE_WORKER || identity.name() != worker) continue;
    const int64_t until = TimeUtil::TimestampToMilliseconds(identity.certificate_expires());
    finding.verdict = until > unix_ms ? Verdict::kOk : Verdict::kFailed;
    finding.found = "good until " + DateAndTime(until);
    if (finding.verdict == Verdict::kOk) break;
    finding.found = "it expired at " + DateAndTime(until);
    finding.remedy = fmt::format(
        "a worker renews its own; the log of {0} says why it does not; else start it again with "
        "--join TOKEN of `ringctl token create --role worker --name {0}`",
        worker);
  }
  return finding;
}

std::optional<uint64_t> IfSaid(bool known, uint64_t value) {
  return known ? std::optional(value) : std::nullopt;
}

Finding DiskFinding(const std::string& about, const std::string& flag,
                    std::optional<uint64_t> known, uint64_t needed) {
  Finding finding{Verdict::kOk, "disk", about};
  if (!known) return {Verdict::kSkipped, "disk", about, "what is free is not known"};
  const uint64_t free = *known;
  finding.found = fmt::format("{} free where {} is", FormatBytes(free), flag);
  if (needed > 0) finding.found += fmt::format(", the job needs {}", FormatBytes(needed));
  if (free < kNoSpace || free < needed) finding.verdict = Verdict::kFailed;
  if (finding.verdict == Verdict::kOk && free < kLittleSpace) finding.verdict = Verdict::kWarning;
  if (finding.verdict != Verdict::kOk) {
    finding.remedy = fmt::format("free space there, or start it with another {}", flag);
  }
  return finding;
}

std::string RateOf(double bytes_per_second) {
  return FormatBytes(static_cast<uint64_t>(bytes_per_second)) + "/s";
}

Finding Unreached(const v1::BenchLink& link) {
  const size_t colon = link.address().rfind(':');
  const std::string port =
      colon == std::string::npos ? "its port" : "TCP port " + link.address().substr(colon + 1);
  return {Verdict::kFailed, "port", fmt::format("{} to {}", link.from(), link.to()),
          OneLine(link.error(), kMostText),
          fmt::format("let {0} in at {1} on the host of {2} (a firewall's or the cloud's rule); a "
                      "port stays the same with ringworker --listen HOST:PORT there; where {0} "
                      "cannot reach that address at all, start {2} with --listen, or --advertise, "
                      "of one that it can",
                      link.from(), port, link.to())};
}

bool WayBackIsClosed(const v1::BenchLink& link, const v1::AllReduceReport& report) {
  return std::any_of(report.links().begin(), report.links().end(), [&](const v1::BenchLink& back) {
    return back.from() == link.to() && back.to() == link.from() && back.unreached();
  });
}

}  // namespace

Findings CheckCoordinator(const std::string& address, const v1::CoordinatorFigures& coordinator,
                          int64_t unix_ms, milliseconds round_trip) {
  const std::string own = VersionLine("ringmaster");
  const auto release = [](const std::string& line) { return line.substr(0, line.find(" (")); };
  Findings findings{
      {Verdict::kOk, "coordinator", "",
       fmt::format("{}: {}, answers in {}", address, coordinator.version(), Shown(round_trip))}};
  if (release(own) != release(coordinator.version())) {
    findings.back().verdict = Verdict::kWarning;
    findings.back().remedy =
        fmt::format("this ringctl is of {}: install one release on all hosts", release(own));
  }
  // It read its clock half a round trip ago, as far as anybody can tell.
  const milliseconds ahead(unix_ms - round_trip.count() / 2 - coordinator.unix_ms());
  findings.push_back(ClockFinding("this host", ahead, "this host"));
  return findings;
}

Finding CheckOwnCertificate(const v1::WhoAmIResponse& who, int64_t unix_ms) {
  if (who.identity().empty()) {
    return {Verdict::kOk, "certificate", "this user", "none needed: a local user"};
  }
  const int64_t until = TimeUtil::TimestampToMilliseconds(who.certificate_expires());
  Finding finding{Verdict::kOk, "certificate", "this user",
                  fmt::format("{}, good until {}", who.identity(), DateAndTime(until))};
  if (until > unix_ms) return finding;
  finding.verdict = Verdict::kFailed;
  finding.remedy = "log in again: `ringctl login TOKEN`, with one of `ringctl token create`";
  return finding;
}

Findings CheckWorkers(const v1::ListWorkersResponse& workers,
                      const std::optional<v1::ListIdentitiesResponse>& identities) {
  Findings findings;
  if (workers.workers().empty()) {
    return {{Verdict::kFailed, "worker", "", "none is attached",
             "start one: ringworker --join TOKEN --data-root DIR --state-dir DIR, with a TOKEN of "
             "`ringctl token create --role worker`; one that runs says in its log why it is "
             "refused"}};
  }
  for (const v1::WorkerStatus& worker : workers.workers()) {
    const bool drained = worker.state() == "DRAINED" || worker.state() == "DRAINING";
    const std::string& interface = worker.host_figures().interface();
    findings.push_back(
        {drained ? Verdict::kWarning : Verdict::kOk, "worker", worker.name(),
         fmt::format("{} on {}, {}, ring at {}{}{}", worker.state(), worker.host(),
                     Count(worker.cores(), "core"), worker.ring_address(),
                     interface.empty() ? "" : " on " + interface,
                     worker.job_id().empty() ? "" : ", serves " + worker.job_id()),
         drained ? fmt::format("it takes no jobs; `ringctl drain {} --resume` gives it some",
                               worker.name())
                 : ""});
    if (worker.has_clock_ahead_ms()) {
      findings.push_back(ClockFinding(worker.name(), milliseconds(worker.clock_ahead_ms()),
                                      "worker " + worker.name()));
    } else {
      findings.push_back({Verdict::kSkipped, "clock", worker.name(), "it has not said it yet"});
    }
    if (identities) {
      findings.push_back(
          CheckCertificate(worker.name(), *identities, workers.coordinator().unix_ms()));
    }
  }
  findings.push_back(CheckClasses(workers));
  return findings;
}

Findings CheckDisks(const v1::ListWorkersResponse& workers, std::optional<uint64_t> needed_bytes) {
  const uint64_t checkpoints = needed_bytes.value_or(0) * kCheckpointsAtOnce;
  const v1::CoordinatorFigures& own = workers.coordinator();
  Findings findings{DiskFinding("coordinator", "--data-dir",
                                IfSaid(own.has_data_free(), own.data_free()), checkpoints)};
  for (const v1::WorkerStatus& worker : workers.workers()) {
    if (!worker.has_host_figures()) continue;
    const v1::HostFigures& host = worker.host_figures();
    const auto state = IfSaid(host.has_state_free(), host.state_free());
    const auto cache = IfSaid(host.has_cache_free(), host.cache_free());
    findings.push_back(DiskFinding(worker.name(), "--state-dir", state, 0));
    if (!cache || cache == state) continue;  // one disk, as it seems
    findings.push_back(DiskFinding(worker.name(), "--data-cache", cache, 0));
  }
  return findings;
}

std::vector<std::string> ChooseForLinks(const v1::ListWorkersResponse& workers,
                                        Findings* findings) {
  std::vector<std::string> free;
  for (const v1::WorkerStatus& worker : workers.workers()) {
    if (worker.state() == "FREE") {
      free.push_back(worker.name());
    } else {
      findings->push_back(
          {Verdict::kSkipped, "link", worker.name(),
           fmt::format("{}{}: a measurement would disturb it", worker.state(),
                       worker.job_id().empty() ? "" : ", serves " + worker.job_id()),
           "check again when it is free"});
    }
  }
  if (free.size() >= 2) return free;
  findings->push_back({Verdict::kSkipped, "link", "",
                       fmt::format("links are between two workers, {} free: nothing is measured",
                                   free.size() == 1 ? "one is" : "none is")});
  return {};
}

Findings CheckLinks(const v1::AllReduceReport& report) {
  std::vector<double> rates;
  for (const v1::BenchLink& link : report.links()) {
    if (link.error().empty()) rates.push_back(link.bytes_per_second());
  }
  std::sort(rates.begin(), rates.end());
  const double middle = rates.empty() ? 0 : rates[rates.size() / 2];
  Findings findings;
  for (const v1::BenchLink& link : report.links()) {
    const std::string about = fmt::format("{} to {}", link.from(), link.to());
    if (link.unreached()) {
      findings.push_back(Unreached(link));
      continue;
    }
    if (!link.error().empty()) {
      Finding broken{Verdict::kSkipped, "link", about, OneLine(link.error(), kMostText)};
      if (!WayBackIsClosed(link, report)) {
        broken.verdict = Verdict::kFailed;
        broken.remedy = fmt::format("look at the logs of {} and {}", link.from(), link.to());
      }
      findings.push_back(std::move(broken));
      continue;
    }
    Finding finding{Verdict::kOk, "link", about,
                    fmt::format("{} at {}, round trip {:.3f} ms", RateOf(link.bytes_per_second()),
                                link.address(), link.round_trip_seconds() * 1e3)};
    if (link.bytes_per_second() < kSlowLink * middle) {
      finding.verdict = Verdict::kWarning;
      finding.found += fmt::format("; others have {}", RateOf(middle));
      finding.remedy =
          "a ring is as fast as its slowest link: look at the cable, the port's speed (`ethtool`) "
          "and what else uses it; `ringctl bench allreduce` measures again";
    }
    findings.push_back(std::move(finding));
  }
  return findings;
}

Findings CheckJobPlan(const Json& plan) {
  Findings findings;
  for (const Json& one : plan.at("classes")) {
    Finding finding{Verdict::kOk, "job", one.at("profile").at("name")};
    if (one.at("plan").is_null()) {
      finding.verdict = Verdict::kWarning;
      finding.found = OneLine("not planned: " + one.at("error").get<std::string>(), kMostText);
    } else {
      const Json& its = one.at("plan");
      const bool fits = its.at("fits");
      const uint64_t largest = its.at("largest_batch"), core = its.at("memory_per_core_bytes");
      finding.verdict = fits ? Verdict::kOk : Verdict::kFailed;
      finding.found = fmt::format("{} into {} a core; largest batch {}",
                                  fits ? "fits" : "does not fit", FormatBytes(core), largest);
      if (!fits) finding.remedy = "`ringctl plan FILE --cluster` says what takes the memory";
    }
    findings.push_back(std::move(finding));
  }
  return findings;
}

std::optional<uint64_t> StateBytes(const Json& plan) {
  for (const Json& one : plan.at("classes")) {
    if (!one.at("plan").is_null()) {
      return one.at("plan").at("checkpoint_copy_bytes").get<uint64_t>();
    }
  }
  return std::nullopt;
}

}  // namespace ringmaster::cli
