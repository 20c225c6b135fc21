#include "worker/notice.h"

#include <catch2/catch.hpp>

namespace ringmaster::worker {
namespace {

StatusOr<std::string> Read(Cloud cloud, uint32_t status, const std::string& body) {
  HttpResponse response;
  response.status = status;
  response.body = body;
  return NoticeIn(cloud, response, "vm-7");
}

std::string AzureEvent(const std::string& type, const std::string& resources) {
  return R"({"DocumentIncarnation":3,"Events":[{"EventId":"e","EventType":")" + type +
         R"(","ResourceType":"VirtualMachine","Resources":)" + resources +
         R"(,"EventStatus":"Scheduled","NotBefore":"Mon, 19 Sep 2026 18:29:47 GMT"}]})";
}

}  // namespace

TEST_CASE("NoticeWatch: a host that stays has no notice in any dialect") {
  CHECK(*Read(Cloud::kAws, 404, "not found") == "");
  CHECK(*Read(Cloud::kGcp, 200, "FALSE") == "");
  CHECK(*Read(Cloud::kAzure, 200, R"({"DocumentIncarnation":1,"Events":[]})") == "");
}

TEST_CASE("NoticeWatch: what each cloud says when it takes the host away") {
  CHECK(*Read(Cloud::kAws, 200, R"({"action":"terminate","time":"2026-09-18T08:22:00Z"})") ==
        "preemption notice of AWS: terminate at 2026-09-18T08:22:00Z");
  CHECK(*Read(Cloud::kGcp, 200, "TRUE\n") == "preemption notice of Google");
  CHECK(*Read(Cloud::kAzure, 200, AzureEvent("Preempt", R"(["vm-6","vm-7"])")) ==
        "preemption notice of Azure: not before Mon, 19 Sep 2026 18:29:47 GMT");
}

TEST_CASE("NoticeWatch: Azure's events of other hosts, and of other types, are not this host's") {
  CHECK(*Read(Cloud::kAzure, 200, AzureEvent("Preempt", R"(["vm-70"])")) == "");
  CHECK(*Read(Cloud::kAzure, 200, AzureEvent("Freeze", R"(["vm-7"])")) == "");
}

TEST_CASE("NoticeWatch: what is no answer of that cloud is no notice") {
  for (const Cloud cloud : {Cloud::kAws, Cloud::kGcp, Cloud::kAzure}) {
    for (const char* body : {"", "yes", "[]", "{}", R"({"action":7})", R"({"Events":{}})"}) {
      CHECK(Read(cloud, 200, body).status().code() == absl::StatusCode::kUnknown);
      CHECK(Read(cloud, 500, body).status().code() == absl::StatusCode::kUnknown);
    }
  }
  const auto odd = Read(Cloud::kGcp, 403, "a\x1b[2Jb");
  CHECK(Message(odd.status()) == R"(the metadata service of Google answered 403: a\x1b[2Jb)");
}

}  // namespace ringmaster::worker
