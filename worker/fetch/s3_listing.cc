#include "worker/fetch/s3_listing.h"

#include <algorithm>
#include <charconv>
#include <functional>

#include "common/text.h"

namespace ringmaster::worker {
namespace {

constexpr size_t kMaxDepth = 8;
constexpr size_t kMaxElementName = 100;

bool IsXmlBlank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

bool IsXmlName(const std::string& name) {
  return !name.empty() && name.size() <= kMaxElementName &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '-' || c == '.' || c == ':';
         });
}

// `code` as UTF-8; false: none of XML's characters.
bool AppendCharacter(uint32_t code, std::string* text) {
  const bool control = code < 0x20 && code != '\t' && code != '\n' && code != '\r';
  if (control || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
  if (code < 0x80) {
    *text += static_cast<char>(code);
  } else if (code < 0x800) {
    *text += static_cast<char>(0xc0 | (code >> 6));
  } else if (code < 0x10000) {
    *text += static_cast<char>(0xe0 | (code >> 12));
    *text += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
  } else {
    *text += static_cast<char>(0xf0 | (code >> 18));
    *text += static_cast<char>(0x80 | ((code >> 12) & 0x3f));
    *text += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
  }
  if (code >= 0x80) *text += static_cast<char>(0x80 | (code & 0x3f));
  return true;
}

// What stands between `&` and `;`.
bool AppendEntity(const std::string& name, std::string* text) {
  if (name == "amp") return AppendCharacter('&', text);
  if (name == "lt") return AppendCharacter('<', text);
  if (name == "gt") return AppendCharacter('>', text);
  if (name == "quot") return AppendCharacter('"', text);
  if (name == "apos") return AppendCharacter('\'', text);
  if (name.size() < 2 || name[0] != '#') return false;
  const bool hex = name[1] == 'x';
  const char* const begin = name.data() + (hex ? 2 : 1);
  const char* const end = name.data() + name.size();
  uint32_t code = 0;
  const auto [stop, error] = std::from_chars(begin, end, code, hex ? 16 : 10);
  return error == std::errc() && stop == end && begin < end && AppendCharacter(code, text);
}

// Walks over a text, and tells of each element its path and, at its end, the text in it.
class XmlWalk {
 public:
  struct Listener {
    std::function<Status(const std::vector<std::string>& path)> opened;
    std::function<Status(const std::vector<std::string>& path, const std::string& text)> closed;
  };
  XmlWalk(const std::string& xml, const Listener& listener) : xml_(xml), listener_(listener) {}
  [[nodiscard]] Status Run();

 private:
  [[nodiscard]] Status Wrong(const std::string& what) const {
    return InvalidArgument("byte {}: {}", at_, what);
  }
  [[nodiscard]] Status TakeText();
  [[nodiscard]] Status TakeTag();
  [[nodiscard]] Status Open(const std::string& inside);
  [[nodiscard]] Status Close(const std::string& name);

  const std::string& xml_;
  const Listener& listener_;
  size_t at_ = 0;
  std::vector<std::string> path_;
  std::string text_;    // since the newest tag
  bool ended_ = false;  // the one element that there is
};

Status XmlWalk::TakeText() {
  const size_t end = std::min(xml_.find('<', at_), xml_.size());
  while (at_ < end) {
    const char c = xml_[at_];
    if (path_.empty() && !IsXmlBlank(c)) return Wrong("text outside of every element");
    if (c != '&') {
      text_ += c;
      ++at_;
      continue;
    }
    const size_t semicolon = xml_.find(';', at_);
    if (semicolon == std::string::npos || semicolon - at_ > 12 ||
        !AppendEntity(xml_.substr(at_ + 1, semicolon - at_ - 1), &text_)) {
      return Wrong("an entity that is none of XML's own five and no character's number");
    }
    at_ = semicolon + 1;
  }
  return absl::OkStatus();
}

Status XmlWalk::Open(const std::string& inside) {
  const size_t name_end = std::find_if(inside.begin(), inside.end(), IsXmlBlank) - inside.begin();
  const bool empty = inside.ends_with('/');
  const std::string name = inside.substr(0, std::min(name_end, inside.size() - (empty ? 1 : 0)));
  if (!IsXmlName(name)) return Wrong("no name of an element");
  if (ended_ || path_.size() == kMaxDepth) {
    return Wrong(ended_ ? "a second element" : "elements lie too deep in each other");
  }
  path_.push_back(name);
  text_.clear();
  RING_RETURN_IF_ERROR(listener_.opened(path_));
  return empty ? Close(name) : absl::OkStatus();
}

Status XmlWalk::Close(const std::string& name) {
  if (path_.empty() || path_.back() != name) return Wrong("the end of an element that is not open");
  RING_RETURN_IF_ERROR(listener_.closed(path_, text_));
  path_.pop_back();
  text_.clear();
  ended_ = path_.empty();
  return absl::OkStatus();
}

// Attributes (of namespaces) are passed over: no `>` stands in those that stores send.
Status XmlWalk::TakeTag() {
  const size_t end = xml_.find('>', at_);
  if (end == std::string::npos) return Wrong("a tag without its end");
  const std::string inside = xml_.substr(at_ + 1, end - at_ - 1);
  if (inside.starts_with('!')) return Wrong("a DOCTYPE, a comment or CDATA, which are not read");
  if (inside.starts_with('?')) {
    if (at_ != 0 || !inside.starts_with("?xml ")) return Wrong("a processing instruction");
  } else if (inside.starts_with('/')) {
    std::string name = inside.substr(1);
    while (!name.empty() && IsXmlBlank(name.back())) name.pop_back();
    RING_RETURN_IF_ERROR(Close(name));
  } else {
    RING_RETURN_IF_ERROR(Open(inside));
  }
  at_ = end + 1;
  return absl::OkStatus();
}

Status XmlWalk::Run() {
  while (at_ < xml_.size()) {
    RING_RETURN_IF_ERROR(xml_[at_] == '<' ? TakeTag() : TakeText());
  }
  return ended_ ? absl::OkStatus() : Wrong("it ends inside of an element");
}

// The parts of a page, each of them once.
struct PageReader {
  S3Page page;
  bool truncated = false, has_truncated = false, has_next = false;
  bool key = false, size = false;  // of the newest object

  Status Opened(const std::vector<std::string>& path);
  Status Closed(const std::vector<std::string>& path, const std::string& text);
};

Status OnlyOnce(bool* seen, const std::string& what) {
  if (*seen) return InvalidArgument("{} is there twice", what);
  *seen = true;
  return absl::OkStatus();
}

Status PageReader::Opened(const std::vector<std::string>& path) {
  if (path.size() == 1 && path[0] != "ListBucketResult") {
    return InvalidArgument("<{}> where <ListBucketResult> is expected", path[0]);
  }
  if (path.size() == 2 && path[1] == "Contents") {
    page.objects.emplace_back();
    key = size = false;
  }
  return absl::OkStatus();
}

Status PageReader::Closed(const std::vector<std::string>& path, const std::string& text) {
  if (path.size() == 2 && path[1] == "IsTruncated") {
    truncated = text == "true";
    if (!truncated && text != "false")
      return InvalidArgument("IsTruncated is neither true nor false");
    return OnlyOnce(&has_truncated, "IsTruncated");
  }
  if (path.size() == 2 && path[1] == "NextContinuationToken") {
    page.next = text;
    return OnlyOnce(&has_next, "NextContinuationToken");
  }
  if (path.size() == 2 && path[1] == "Contents" && (!key || !size)) {
    return InvalidArgument("object {} lacks Key or Size", page.objects.size());
  }
  if (path.size() != 3 || path[1] != "Contents") return absl::OkStatus();
  S3Object& object = page.objects.back();
  if (path[2] == "Key") {
    object.key = text;
    return OnlyOnce(&key, "Key");
  }
  if (path[2] == "ETag") object.etag = text;
  if (path[2] != "Size") return absl::OkStatus();
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), object.bytes);
  if (error != std::errc() || end != text.data() + text.size() || object.bytes > INT64_MAX) {
    return InvalidArgument("Size of object {} is \"{}\"", page.objects.size(),
                           OneLine(text, kMaxNameText));
  }
  return OnlyOnce(&size, "Size");
}

}  // namespace

StatusOr<S3Page> ParseS3Page(const std::string& xml) {
  if (xml.size() > kMaxListingBytes) {
    return InvalidArgument("{} bytes, at most {} are allowed", xml.size(), kMaxListingBytes);
  }
  PageReader reader;
  const XmlWalk::Listener listener{
      [&](const auto& path) { return reader.Opened(path); },
      [&](const auto& path, const std::string& text) { return reader.Closed(path, text); }};
  RING_RETURN_IF_ERROR(XmlWalk(xml, listener).Run());
  if (!reader.has_truncated) return InvalidArgument("IsTruncated is missing");
  if (!reader.truncated) reader.page.next.clear();
  if (reader.truncated && reader.page.next.empty()) {
    return InvalidArgument("NextContinuationToken is missing");
  }
  return std::move(reader.page);
}

std::string S3ErrorCode(const std::string& xml) {
  std::string code;
  const XmlWalk::Listener listener{
      [](const auto& /*path*/) { return absl::OkStatus(); },
      [&](const std::vector<std::string>& path, const std::string& text) {
        if (path.size() == 2 && path[0] == "Error" && path[1] == "Code") code = text;
        return absl::OkStatus();
      }};
  const bool is_word = XmlWalk(xml, listener).Run().ok() && IsXmlName(code);
  return is_word ? code : "";
}

}  // namespace ringmaster::worker
