#include "common/yaml/yaml_tree.h"

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <exception>
#include <sstream>

// yaml-cpp's event interface is not part of its umbrella header.
#include <yaml-cpp/eventhandler.h>

namespace ringmaster {
namespace {

constexpr size_t kMaxBytes = 256 << 10;
constexpr size_t kMaxDepth = 32;
constexpr size_t kMaxKeys = 1024;  // of one mapping: each is compared with all before it

// Ends the parse: the only thing that yaml-cpp's interface lets a handler do.
struct Refused {
  std::string where;
  std::string why;
};

// Builds the tree from the parser's events.
class TreeBuilder final : public YAML::EventHandler {
 public:
  explicit TreeBuilder(std::string name) : name_(std::move(name)) {}

  YamlNode TakeRoot() { return std::move(root_); }
  std::string Where(const YAML::Mark& mark) const {
    return fmt::format("{}:{}:{}", name_, mark.line + 1, mark.column + 1);
  }

  void OnDocumentStart(const YAML::Mark& /*mark*/) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Add(mark, "", anchor, YamlNode::Kind::kNull);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override {
    throw Refused{Where(mark), "aliases (*name) are not allowed: write the value itself"};
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    YamlNode& node = Add(mark, tag, anchor, YamlNode::Kind::kScalar);
    node.text = value;
    node.quoted = tag == "!";
    KeepIfKey(node);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    Open(Add(mark, tag, anchor, YamlNode::Kind::kList));
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    Open(Add(mark, tag, anchor, YamlNode::Kind::kMap));
  }
  void OnMapEnd() override { Close(); }

 private:
  // A collection that is being read. Nodes move as their siblings are added, so each level owns
  // its node until it ends.
  struct Level {
    YamlNode node;
    bool expects_key = true;  // of a map
  };

  // A new node in the place where the parser is; collections are moved to a level of their own.
  YamlNode& Add(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                YamlNode::Kind kind) {
    // Plain scalars have the tag ?, quoted ones !.
    if (!tag.empty() && tag != "?" && tag != "!") {
      throw Refused{Where(mark), fmt::format("tags ({}) are not allowed", tag)};
    }
    if (anchor != 0) throw Refused{Where(mark), "anchors (&name) are not allowed"};
    current_ = YamlNode{kind, Where(mark), "", false, {}, {}};
    const bool is_key = !levels_.empty() && levels_.back().node.kind == YamlNode::Kind::kMap &&
                        levels_.back().expects_key;
    if (is_key && kind != YamlNode::Kind::kScalar) {
      throw Refused{Where(mark), "a key must be a plain word"};
    }
    if (kind == YamlNode::Kind::kNull) Place(std::move(current_));
    return current_;
  }

  // A scalar that is complete: a key, or a value to put in its place.
  void KeepIfKey(YamlNode& node) {
    if (levels_.empty() || levels_.back().node.kind != YamlNode::Kind::kMap ||
        !levels_.back().expects_key) {
      Place(std::move(node));
      return;
    }
    Level& level = levels_.back();
    for (const YamlNode::Member& member : level.node.members) {
      if (member.key != node.text) continue;
      throw Refused{node.where,
                    fmt::format("duplicate key \"{}\"; first at {}", node.text, member.where)};
    }
    if (level.node.members.size() >= kMaxKeys) {
      throw Refused{node.where, fmt::format("a mapping with more than {} keys", kMaxKeys)};
    }
    level.node.members.push_back({node.text, node.where, {}});
    level.expects_key = false;
  }

  void Open(const YamlNode& node) {
    if (levels_.size() >= kMaxDepth) {
      throw Refused{node.where, fmt::format("nested deeper than {} levels", kMaxDepth)};
    }
    levels_.push_back({node});
  }

  void Close() {
    YamlNode node = std::move(levels_.back().node);
    levels_.pop_back();
    Place(std::move(node));
  }

  void Place(YamlNode node) {
    if (levels_.empty()) {
      root_ = std::move(node);
      return;
    }
    Level& level = levels_.back();
    if (level.node.kind == YamlNode::Kind::kList) {
      level.node.items.push_back(std::move(node));
    } else {
      // yaml-cpp finds that a value is missing at the next token: the key says more.
      YamlNode::Member& member = level.node.members.back();
      if (node.kind == YamlNode::Kind::kNull) node.where = member.where;
      member.value = std::move(node);
      level.expects_key = true;
    }
  }

  const std::string name_;
  std::vector<Level> levels_;
  YamlNode current_, root_;
};

// Bytes of the UTF-8 sequence (RFC 3629) that starts at `at`; 0 when there is none.
size_t SequenceLength(const std::string& text, size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) return 1;
  const size_t length = first < 0xc2   ? 0
                        : first < 0xe0 ? 2
                        : first < 0xf0 ? 3
                        : first < 0xf5 ? 4
                                       : 0;
  if (length == 0 || at + length > text.size()) return 0;
  uint32_t code = first & (0x7fU >> length);
  for (size_t i = 1; i < length; ++i) {
    const auto next = static_cast<unsigned char>(text[at + i]);
    if ((next & 0xc0) != 0x80) return 0;
    code = code << 6 | (next & 0x3f);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  return code < kSmallest[length] || code > 0x10ffff || surrogate ? 0 : length;
}

// yaml-cpp takes any bytes; strings of a proto must be UTF-8, and no job file needs control
// characters.
Status CheckCharacters(const std::string& name, const std::string& text) {
  size_t line = 1, column = 1;
  for (size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const size_t length = SequenceLength(text, at);
    const bool space = byte == '\n' || byte == '\r' || byte == '\t';
    if (length == 0 || (byte < 0x20 && !space) || byte == 0x7f) {
      return InvalidArgument("{}:{}:{}: byte 0x{:02x} is not part of UTF-8 text", name, line,
                             column, byte);
    }
    column = byte == '\n' ? 1 : column + 1;
    line += byte == '\n' ? 1 : 0;
    at += length;
  }
  return absl::OkStatus();
}

}  // namespace

std::string Describe(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "nothing";
    case YamlNode::Kind::kList:
      return "a list";
    case YamlNode::Kind::kMap:
      return "a mapping";
    case YamlNode::Kind::kScalar:
      break;
  }
  constexpr size_t kLongest = 60;
  return fmt::format("\"{}\"{}", node.text.substr(0, kLongest),
                     node.text.size() > kLongest ? "..." : "");
}

StatusOr<YamlNode> ParseYaml(const std::string& name, const std::string& text) {
  if (text.size() > kMaxBytes) {
    return InvalidArgument("{}: {} bytes; a file has at most {}", name, text.size(), kMaxBytes);
  }
  RING_RETURN_IF_ERROR(CheckCharacters(name, text));
  TreeBuilder builder(name);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) return InvalidArgument("{}: empty", name);
    YamlNode root = builder.TakeRoot();
    if (parser.HandleNextDocument(builder)) {
      return InvalidArgument("{}: a second document; a file has one", builder.TakeRoot().where);
    }
    return root;
  } catch (const Refused& refused) {
    return InvalidArgument("{}: {}", refused.where, refused.why);
  } catch (const YAML::Exception& error) {
    return InvalidArgument("{}: {}", builder.Where(error.mark), error.msg);
  } catch (const std::exception& error) {
    return InvalidArgument("{}: not YAML: {}", name, error.what());
  }
}

void Relocate(const std::string& where, YamlNode* node) {
  node->where = where;
  for (YamlNode& item : node->items) Relocate(where, &item);
  for (YamlNode::Member& member : node->members) {
    member.where = where;
    Relocate(where, &member.value);
  }
}

}  // namespace ringmaster
