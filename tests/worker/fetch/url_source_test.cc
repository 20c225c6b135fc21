// What needs no server; tests/integration/url_test.py has the rest.
#include "worker/fetch/url_source.h"

#include <array>
#include <catch2/catch.hpp>

namespace ringmaster::worker {
namespace {

FetchLimits SoonOver() {
  return {std::chrono::steady_clock::now() + std::chrono::seconds(20), std::stop_token()};
}

TEST_CASE("Address sources: what cannot be fetched is said before anybody is asked") {
  const auto error = [](const std::string& url, const UrlOptions& options) {
    const auto source = MakeUrlSource(url, options);
    return source.ok() ? "made: " + (*source)->name() : Message(source.status());
  };
  UrlOptions options;
  options.environment = [](const char*) { return std::string(); };
  CHECK(error("http://h/x", options) ==
        "http://h/x: this worker fetches http only with --data-http; use https");
  CHECK(error("ftp://h/x", options).find("addresses of data begin with") == 0);
  CHECK(error("https://h/d/", options) == "made: https://h/d/");
  CHECK(error("s3://bucket/d/", options) == "made: s3://bucket/d/");
  options.s3_endpoint = "http://minio:9000";
  CHECK(error("s3://bucket/d/", options) ==
        "--s3-endpoint http://minio:9000: http needs --data-http");
  options.allow_http = true;
  CHECK(error("s3://bucket/d/", options) == "made: s3://bucket/d/");
  options.environment = [](const char* name) {
    return std::string(name == std::string("AWS_ACCESS_KEY_ID") ? "ID" : "");
  };
  CHECK(error("s3://bucket/d/", options).find("the secret is missing") != std::string::npos);
}

TEST_CASE("Address sources: reads beyond a file are refused") {
  const auto source = MakeUrlSource("https://127.0.0.1:1/x", {});
  REQUIRE(source.ok());
  std::array<uint8_t, 4> bytes{};
  const SourceFile file{.name = "x", .bytes = 3, .pieces = {}, .version = {}};
  CHECK((*source)->Read(file, 0, bytes, SoonOver()).code() == absl::StatusCode::kInvalidArgument);
  const auto two = std::span(bytes).first(2);
  CHECK((*source)->Read(file, UINT64_MAX, two, SoonOver()).code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK((*source)->Read(file, 3, {}, SoonOver()).ok());
}

TEST_CASE("Address sources: this host is not asked, whatever it serves") {
  const auto source = MakeUrlSource("https://127.0.0.1:1/x", {});
  REQUIRE(source.ok());
  const auto listed = (*source)->List(SoonOver());
  CHECK(listed.status().code() == absl::StatusCode::kPermissionDenied);
  CHECK(Message(listed.status()).find("--data-private-addresses") != std::string::npos);
}

TEST_CASE("Address sources: who is not there says the same each time") {
  UrlOptions options;
  options.allow_private = true;
  const auto source = MakeUrlSource("https://127.0.0.1:1/x", options);
  REQUIRE(source.ok());
  const Status listed = (*source)->List(SoonOver()).status();
  CHECK(listed.code() == absl::StatusCode::kUnavailable);
  INFO(Message(listed));
  CHECK(Message(listed).find(" ms") == std::string::npos);
}

TEST_CASE("Address sources: a stop and a deadline end a request before it begins") {
  UrlOptions options;
  options.allow_private = true;
  const auto source = MakeUrlSource("https://127.0.0.1:1/x", options);
  REQUIRE(source.ok());
  std::stop_source stop;
  stop.request_stop();
  CHECK((*source)->List({SoonOver().deadline, stop.get_token()}).status().code() ==
        absl::StatusCode::kCancelled);
  CHECK((*source)->List({std::chrono::steady_clock::now(), {}}).status().code() ==
        absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace ringmaster::worker
