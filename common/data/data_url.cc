#include "common/data/data_url.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "common/text.h"

namespace ringmaster::data {
namespace {

constexpr size_t kMaxPart = 255;  // NAME_MAX of Linux

bool IsAlnum(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// A `%` without two hex digits behind it stands for itself; the checks before refuse it.
std::string PercentDecoded(const std::string& text) {
  std::string decoded;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '%' && at + 2 < text.size() && HexDigit(text[at + 1]) >= 0 &&
        HexDigit(text[at + 2]) >= 0) {
      decoded += static_cast<char>(HexDigit(text[at + 1]) * 16 + HexDigit(text[at + 2]));
      at += 2;
    } else {
      decoded += text[at];
    }
  }
  return decoded;
}

// A number of 1 to 65535.
bool IsPort(const std::string& text) {
  uint32_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port >= 1 && port <= 65535;
}

bool IsHost(const std::string& host) {
  if (host.starts_with('[')) {
    return host.size() > 3 && host.ends_with(']') &&
           std::all_of(host.begin() + 1, host.end() - 1,
                       [](char c) { return HexDigit(c) >= 0 || c == ':' || c == '.'; });
  }
  return !host.empty() && host.size() <= 253 && host.front() != '.' && host.front() != '-' &&
         std::all_of(host.begin(), host.end(),
                     [](char c) { return IsAlnum(c) || c == '.' || c == '-'; });
}

Status CheckNoCredentials(const std::string& scheme, const std::string& authority) {
  const size_t at = authority.rfind('@');
  if (at == std::string::npos) return absl::OkStatus();
  // Whatever stands before the @ is not shown again.
  return InvalidArgument(
      "{}://...@{}: there are credentials in the address, which everybody who sees the job would "
      "read; give them to the workers (their environment or credentials file)",
      scheme, OneLine(authority.substr(at + 1), kMaxNameText));
}

Status CheckHost(const std::string& authority) {
  const size_t bracket = authority.rfind(']');
  const size_t colon = authority.rfind(':');
  const bool port = colon != std::string::npos && (bracket == std::string::npos || bracket < colon);
  const std::string host = authority.substr(0, port ? colon : std::string::npos);
  if (IsHost(host) && (!port || IsPort(authority.substr(colon + 1)))) return absl::OkStatus();
  return InvalidArgument("\"{}\" in the address is no host; expected HOST or HOST:PORT",
                         OneLine(authority, kMaxNameText));
}

// As Amazon's rules for names of buckets, and Google's, which allow more.
Status CheckBucket(const std::string& bucket) {
  const bool good = bucket.size() >= 3 && bucket.size() <= 222 && IsAlnum(bucket.front()) &&
                    IsAlnum(bucket.back()) && bucket.find("..") == std::string::npos &&
                    std::all_of(bucket.begin(), bucket.end(), [](char c) {
                      return (IsAlnum(c) && std::isupper(static_cast<unsigned char>(c)) == 0) ||
                             c == '.' || c == '-' || c == '_';
                    });
  if (good) return absl::OkStatus();
  return InvalidArgument(
      "\"{}\" is no name of a bucket; expected s3://BUCKET/PREFIX/ with 3 to 222 of a to z, 0 to "
      "9, . - and _",
      OneLine(bucket, kMaxNameText));
}

// Of http: what may stand in an address, so that nothing in it is read in two ways.
Status CheckPathCharacters(const std::string& text, const std::string& path) {
  static const std::string kAllowed = "-._~/%!$&'()*+,;=:@";
  for (size_t at = 0; at < path.size(); ++at) {
    const char c = path[at];
    if (c == '?' || c == '#') {
      return InvalidArgument(
          "{}: an address of data has no query or fragment; a `{}` in a name is written %{:02X}",
          OneLine(text.substr(0, text.find_first_of("?#"))), c, static_cast<unsigned char>(c));
    }
    const bool hex = c != '%' || (at + 2 < path.size() && HexDigit(path[at + 1]) >= 0 &&
                                  HexDigit(path[at + 2]) >= 0);
    if (!hex || (!IsAlnum(c) && kAllowed.find(c) == std::string::npos)) {
      return InvalidArgument("{}: character {} of its path must be percent-encoded, as %{:02X}",
                             OneLine(text), at, static_cast<unsigned char>(c));
    }
    if (c == '%' && HexDigit(path[at + 1]) == 2 && HexDigit(path[at + 2]) == 15) {
      return InvalidArgument("{}: character {} of its path is an encoded `/`: write it as it is",
                             OneLine(text), at);
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string DataUrl::file_name() const {
  const std::string last = path.substr(path.rfind('/') + 1);
  return scheme == Scheme::kS3 ? last : PercentDecoded(last);
}

bool IsDataUrl(const std::string& path) { return path.find("://") != std::string::npos; }

StatusOr<DataUrl> ParseDataUrl(const std::string& text) {
  const size_t colon = text.find("://");
  std::string scheme = text.substr(0, colon);
  std::ranges::transform(scheme, scheme.begin(), [](unsigned char c) { return std::tolower(c); });
  DataUrl url;
  if (scheme == "https") {
    url.scheme = DataUrl::Scheme::kHttps;
  } else if (scheme == "http") {
    url.scheme = DataUrl::Scheme::kHttp;
  } else if (scheme == "s3") {
    url.scheme = DataUrl::Scheme::kS3;
  } else {
    return InvalidArgument("addresses of data begin with https://, http:// or s3://, not \"{}\"",
                           OneLine(text.substr(0, std::min<size_t>(colon + 3, 40))));
  }
  const std::string rest = text.substr(colon + 3);
  const bool s3 = url.scheme == DataUrl::Scheme::kS3;
  const size_t slash = std::min(rest.find_first_of(s3 ? "/" : "/?#"), rest.size());
  url.host = rest.substr(0, slash);
  RING_RETURN_IF_ERROR(CheckNoCredentials(scheme, url.host));
  if (s3) {
    RING_RETURN_IF_ERROR(CheckBucket(url.host));
    url.path = rest.substr(std::min(slash + 1, rest.size()));
  } else {
    RING_RETURN_IF_ERROR(CheckHost(url.host));
    std::ranges::transform(url.host, url.host.begin(),
                           [](unsigned char c) { return std::tolower(c); });
    url.path = slash == rest.size() ? "/" : rest.substr(slash);
    RING_RETURN_IF_ERROR(CheckPathCharacters(text, url.path));
  }
  std::string decoded = s3 ? url.path : PercentDecoded(url.path.substr(1));
  if (decoded.ends_with('/')) decoded.pop_back();
  if (decoded.empty()) return url;
  RING_RETURN_IF_ERROR(Annotate(CheckFileName(decoded), OneLine(text, kMaxNameText)));
  return url;
}

Status CheckFileName(const std::string& name) {
  const auto refuse = [&](const std::string& why) {
    return InvalidArgument("\"{}\" {}", OneLine(name, kMaxNameText), why);
  };
  if (name.size() > kMaxFileName) return refuse("is a name of more than 4096 bytes");
  if (CleanText(name, kMaxFileName) != name || OneLine(name, 2 * kMaxFileName) != name) {
    return refuse("is a name that is no UTF-8, or has control characters");
  }
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    if (part == "..") return refuse("leaves its folder by `..`");
    if (part.empty() || part == ".") return refuse("has an empty part, or `.`, between its `/`");
    if (part.size() > kMaxPart) return refuse("has a part of more than 255 bytes");
    begin = end + 1;
  }
  return absl::OkStatus();
}

Status CheckFileNames(const std::vector<std::string>& sorted) {
  for (size_t i = 0; i < sorted.size(); ++i) {
    const std::string& name = sorted[i];
    if (i > 0 && sorted[i - 1] == name) {
      return InvalidArgument("\"{}\" is there twice", OneLine(name, kMaxNameText));
    }
    for (size_t at = name.find('/'); at != std::string::npos; at = name.find('/', at + 1)) {
      if (std::ranges::binary_search(sorted, name.substr(0, at))) {
        return InvalidArgument("\"{}\" is a file, and the folder of \"{}\"",
                               OneLine(name.substr(0, at), kMaxNameText),
                               OneLine(name, kMaxNameText));
      }
    }
  }
  return absl::OkStatus();
}

std::string PercentEncoded(const std::string& text, const std::string& keep) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (IsAlnum(c) || c == '-' || c == '.' || c == '_' || c == '~' ||
        keep.find(c) != std::string::npos) {
      encoded += c;
    } else {
      encoded += '%';
      encoded += kHex[byte >> 4];
      encoded += kHex[byte & 15];
    }
  }
  return encoded;
}

}  // namespace ringmaster::data
