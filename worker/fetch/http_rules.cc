#include "worker/fetch/http_rules.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <initializer_list>

#include "common/data/data_url.h"
#include "common/text.h"

namespace ringmaster::worker {
namespace {

using data::DataUrl;

bool StartsWithBytes(std::span<const uint8_t> bytes, std::initializer_list<uint8_t> prefix) {
  return std::equal(prefix.begin(), prefix.end(), bytes.begin());
}

// `location` as an address of its own (RFC 3986, section 5.2, without `..`); empty: none of http's.
std::string Resolved(const std::string& url, const std::string& location) {
  const size_t host = url.find("://") + 3;
  const size_t path = std::min(url.find('/', host), url.size());
  const size_t colon = location.find(':');
  if (colon != std::string::npos && colon < location.find('/')) return location;
  if (location.starts_with("//")) return url.substr(0, host - 2) + location;
  if (location.starts_with('/')) return url.substr(0, path) + location;
  return url.substr(0, std::max(url.rfind('/'), path) + 1) + location;
}

// A host without the port that its scheme has anyway.
std::string PlainHost(const DataUrl& url) {
  const std::string port = url.scheme == DataUrl::Scheme::kHttps ? ":443" : ":80";
  return url.host.ends_with(port) ? url.host.substr(0, url.host.size() - port.size()) : url.host;
}

// Without its port.
std::string NameOfHost(const std::string& host) {
  const size_t colon = host.rfind(':');
  const size_t bracket = host.rfind(']');
  const bool port = colon != std::string::npos && (bracket == std::string::npos || bracket < colon);
  return host.substr(0, port ? colon : std::string::npos);
}

bool MayLead(const DataUrl& from, const DataUrl& to, bool allow_http) {
  if (from.scheme == DataUrl::Scheme::kHttp && to.scheme == DataUrl::Scheme::kHttps) {
    return NameOfHost(from.host) == NameOfHost(to.host);
  }
  const bool scheme =
      from.scheme == to.scheme &&
      (to.scheme == DataUrl::Scheme::kHttps || (to.scheme == DataUrl::Scheme::kHttp && allow_http));
  return scheme && PlainHost(from) == PlainHost(to);
}

}  // namespace

bool IsRedirect(uint32_t status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

StatusOr<std::string> RedirectTarget(const std::string& url, const std::string& location,
                                     bool allow_http) {
  const auto from = data::ParseDataUrl(url);
  const std::string target = Resolved(url, location);
  const auto to = data::ParseDataUrl(target);
  if (from.ok() && to.ok() && MayLead(*from, *to, allow_http)) return target;
  return Error(absl::StatusCode::kPermissionDenied,
               "{}: the server redirects to {}; only redirects to the same host are followed, and "
               "none from https to another scheme: name that address itself if it is trusted",
               url, OneLine(location, kMaxNameText));
}

Status ErrorOf(const HttpResponse& response, const std::string& what) {
  switch (response.status) {
    case 401:
    case 403:
      return Error(absl::StatusCode::kPermissionDenied,
                   "{}: the server does not give it to this worker ({})", what, response.status);
    case 404:
    case 410:
      return Error(absl::StatusCode::kNotFound, "{}: there is none ({})", what, response.status);
    case 412:
      return FailedPrecondition(
          "{}: it changed since it was listed (412); start the job again once it is whole", what);
    case 416:
      return FailedPrecondition(
          "{}: it is shorter than when it was listed (416); start the job again once it is whole",
          what);
    default:
      return Error(absl::StatusCode::kUnknown, "{}: the server answered {}, expected 200 or 206",
                   what, response.status);
  }
}

bool IsPrivateAddress(std::span<const uint8_t> bytes) {
  if (bytes.size() == 4) {
    return bytes[0] == 0 || bytes[0] == 127 || bytes[0] >= 224 ||
           StartsWithBytes(bytes, {169, 254}) ||
           StartsWithBytes(bytes, {100, 100, 100, 200});  // Alibaba Cloud's metadata
  }
  // IPv4 in IPv6: ::a.b.c.d, ::ffff:a.b.c.d, 64:ff9b::a.b.c.d (RFC 4291, 6052), 2002:a.b:c.d::
  // (RFC 3056). ::1 and :: are 0.0.0.1 and 0.0.0.0.
  static constexpr std::array<uint8_t, 12> kZeros{};
  const bool low = std::equal(kZeros.begin(), kZeros.end(), bytes.begin());
  const bool mapped = std::equal(kZeros.begin(), kZeros.begin() + 10, bytes.begin()) &&
                      bytes[10] == 0xff && bytes[11] == 0xff;
  const bool translated = StartsWithBytes(bytes, {0x00, 0x64, 0xff, 0x9b});
  if (low || mapped || translated) return IsPrivateAddress(bytes.subspan(12, 4));
  if (StartsWithBytes(bytes, {0x20, 0x02})) return IsPrivateAddress(bytes.subspan(2, 4));
  const bool link_local = bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80;
  const bool amazon = StartsWithBytes(bytes, {0xfd, 0x00, 0x0e, 0xc2}) && bytes[15] == 0x54 &&
                      bytes[14] == 0x02;  // fd00:ec2::254, Amazon's metadata
  return link_local || bytes[0] == 0xff || amazon;
}

}  // namespace ringmaster::worker
