#include "common/model/expand.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <fmt/ranges.h>

#include "common/model/frame.h"
#include "common/model/kind.h"
#include "common/text.h"
#include "common/yaml/scalar.h"

namespace ringmaster::model {
namespace {

constexpr size_t kMaxItems = 4 * kMaxLayers;   // blocks, and what `when` leaves out, count too
constexpr size_t kMaxBytes = size_t{1} << 20;  // of all layers, places not counted
constexpr int64_t kMaxWork = 4'000'000;        // values looked at

using Refs = std::vector<std::string>;
using Options = std::vector<std::pair<std::string, NodePtr>>;

// One item, once or each of its repetitions.
struct Use {
  const Item* item;
  std::string name;  // full
  Refs inputs;
  Scope scope;  // of the list, with the index
  bool float32 = false;
};

class Expander {
 public:
  StatusOr<std::vector<v1::Layer>> Run(const YamlNode& file,
                                       const std::vector<YamlNode::Member>& given) {
    Frame frame;
    std::vector<Declared> declared;
    const YamlNode* blocks = nullptr;
    for (const YamlNode::Member& member : file.members) {
      if (member.key == "layers") {
        frame.layers = &member.value;
      } else if (member.key == "blocks") {
        blocks = &member.value;
      } else if (member.key == "defaults") {
        defaults_ = &member.value;
      } else if (member.key == "options") {
        RING_ASSIGN_OR_RETURN(declared, ReadDeclared(member.value));
      } else {
        return UnknownKey(member, {"options", "defaults", "blocks", "layers"});
      }
    }
    if (frame.layers == nullptr) {
      return InvalidArgument("{}: expected layers: a list of them", file.where);
    }
    RING_RETURN_IF_ERROR(SetFileOptions(declared, given, file.where, &frame.scope));
    if (blocks != nullptr) RING_RETURN_IF_ERROR(ReadBlocks(*blocks));
    if (defaults_ != nullptr) RING_RETURN_IF_ERROR(CheckDefaults(frame.scope));
    file_scope_ = frame.scope;
    RING_RETURN_IF_ERROR(ExpandList(frame, {}).status());
    if (!layers_.empty()) return std::move(layers_);
    return InvalidArgument("{}: no layer is left", frame.layers->where);
  }

 private:
  // ---- the file's own parts ---------------------------------------------------------------------

  static Status SetFileOptions(const std::vector<Declared>& declared,
                               const std::vector<YamlNode::Member>& given, const std::string& where,
                               Scope* scope) {
    std::vector<std::string> names;
    for (const Declared& option : declared) {
      names.push_back(option.name);
      if (option.by_default != nullptr) scope->options[option.name] = Borrow(*option.by_default);
    }
    for (const YamlNode::Member& member : given) {
      if (std::ranges::find(names, member.key) != names.end()) {
        scope->options[member.key] = Borrow(member.value);
        continue;
      }
      return InvalidArgument("{}: unknown option \"{}\" of a model file; {}", member.where,
                             OneLine(member.key, 64),
                             NearestOr(member.key, names, "it declares none"));
    }
    for (const Declared& option : declared) {
      if (scope->options.contains(option.name)) continue;
      return InvalidArgument("{}: option {} is missing: the file requires it", where, option.name);
    }
    return absl::OkStatus();
  }

  Status ReadBlocks(const YamlNode& blocks) {
    if (blocks.kind != YamlNode::Kind::kMap) {
      return InvalidArgument("{}: blocks: expected a mapping, got {}", blocks.where,
                             Describe(blocks));
    }
    for (const YamlNode::Member& member : blocks.members) {
      if (KindOf(member.key)) {
        return InvalidArgument("{}: block {}: a kind of layer has this name", member.where,
                               member.key);
      }
      RING_ASSIGN_OR_RETURN(Block block, ReadBlock(member));
      blocks_.emplace(member.key, std::move(block));
    }
    return absl::OkStatus();
  }

  // Each by itself, whether or not the kind is used.
  Status CheckDefaults(const Scope& scope) {
    if (defaults_->kind != YamlNode::Kind::kMap) {
      return InvalidArgument("{}: defaults: expected a mapping, got {}", defaults_->where,
                             Describe(*defaults_));
    }
    for (const YamlNode::Member& member : defaults_->members) {
      const std::optional<Kind> kind = KindOf(member.key);
      if (!kind || member.key == kZoo) {
        return InvalidArgument("{}: defaults: there is no layer \"{}\"; {}", member.where,
                               OneLine(member.key, 64), KindAdvice(member.key));
      }
      if (member.value.kind != YamlNode::Kind::kMap) {
        return InvalidArgument("{}: defaults of {}: expected a mapping of options, got {}",
                               member.where, member.key, Describe(member.value));
      }
      for (const YamlNode::Member& option : member.value.members) {
        const FieldDescription* const known = kind->option(option.key);
        if (known == nullptr) {
          return Annotate(UnknownOption(*kind, option.key),
                          fmt::format("{}: {}", option.where, member.key));
        }
        RING_ASSIGN_OR_RETURN(const NodePtr value, scope.Evaluated(Borrow(option.value), &work_));
        const auto read = ReadOption(*known, *kind, *value);
        if (!read.ok()) return read.status();
      }
    }
    return absl::OkStatus();
  }

  // ---- errors -----------------------------------------------------------------------------------

  static Status UnknownOption(const Kind& kind, const std::string& option) {
    std::vector<std::string> names;
    for (const FieldDescription& known : kind.options) names.push_back(known.name);
    return UnknownOption(names, option);
  }
  static Status UnknownOption(const std::vector<std::string>& names, const std::string& option) {
    return InvalidArgument("unknown option \"{}\"; {}", OneLine(option, 64),
                           NearestOr(option, names, "it has none"));
  }

  std::string KindAdvice(const std::string& kind) const {
    std::vector<std::string> known = KindNames();
    for (const auto& [name, block] : blocks_) known.push_back(name);
    return NearestOr(kind, known, "`ringctl model layers` lists them");
  }

  // ---- a list of layers -------------------------------------------------------------------------

  // The outputs of its last item.
  StatusOr<Refs> ExpandList(const Frame& frame, const Refs& first) {
    if (frame.layers->kind != YamlNode::Kind::kList || frame.layers->items.empty()) {
      return InvalidArgument("{}: layers: expected a list of at least one, got {}",
                             frame.layers->where, Describe(*frame.layers));
    }
    Refs before = first;
    std::map<std::string, int> unnamed;
    for (const YamlNode& node : frame.layers->items) {
      const auto item = ReadItem(node);
      if (!item.ok()) return Within(frame, item.status());
      RING_ASSIGN_OR_RETURN(before, ExpandItem(frame, *item, before, &unnamed[item->kind]));
    }
    return before;
  }

  StatusOr<Refs> ExpandItem(const Frame& frame, const Item& item, const Refs& before,
                            int* unnamed) {
    if (!blocks_.contains(item.kind) && !IsKind(item.kind)) {
      return InvalidArgument("{}: there is no layer \"{}\"{}; {}", item.where,
                             OneLine(item.kind, 64), InBlock(frame), KindAdvice(item.kind));
    }
    RING_ASSIGN_OR_RETURN(const int64_t repeat, RepeatOf(frame, item));
    std::string name = item.name;
    if (name.empty()) {
      name = item.repeat != nullptr ? item.kind : fmt::format("{}_{}", item.kind, ++*unnamed);
    }
    Use use = {&item, frame.prefix + name, before, frame.scope};
    if (item.inputs != nullptr) {
      RING_ASSIGN_OR_RETURN(use.inputs, InputsOf(frame, item));
    } else if (!before.empty()) {
      use.inputs = {before.front()};
    }
    Refs made;
    for (int64_t i = 1; i <= repeat; ++i) {
      if (item.repeat != nullptr) {
        use.scope.index = i;
        use.name = fmt::format("{}{}{}", frame.prefix, name, i);
      }
      const size_t inputs = use.inputs.size();
      RING_ASSIGN_OR_RETURN(made, ExpandUse(frame, use));
      if (i == repeat) break;
      if (made.size() < inputs) {
        return At(frame, item,
                  InvalidArgument("a repetition reads {} inputs, the one before it makes {}: write "
                                  "outputs of the block",
                                  inputs, made.size()));
      }
      use.inputs.assign(made.begin(), made.begin() + static_cast<ptrdiff_t>(inputs));
    }
    if (item.repeat != nullptr) {
      RING_RETURN_IF_ERROR(names_.Define(frame, item, frame.prefix + name, made.front()));
    }
    return made;
  }

  StatusOr<int64_t> RepeatOf(const Frame& frame, const Item& item) {
    if (item.repeat == nullptr) return 1;
    const auto value = frame.scope.ValueOf(*item.repeat);
    if (!value.ok()) return Within(frame, value.status());
    const auto* const times = std::get_if<int64_t>(&*value);
    if (times != nullptr && *times >= 1 && *times <= kMaxRepeat) return *times;
    return At(frame, item,
              InvalidArgument("repeat: expected a whole number, 1 to {}, got {}", kMaxRepeat,
                              OneLine(Print(*value), 64)));
  }

  StatusOr<Refs> InputsOf(const Frame& frame, const Item& item) {
    const auto names = ReadNames(*item.inputs, "inputs");
    if (!names.ok()) return Within(frame, names.status());
    Refs inputs;
    for (const std::string& name : *names) {
      auto ref = names_.Find(frame, name);
      if (!ref.ok()) return At(frame, item, ref.status());
      inputs.push_back(*std::move(ref));
    }
    return inputs;
  }

  // ---- one item ---------------------------------------------------------------------------------

  StatusOr<Refs> ExpandUse(const Frame& frame, Use use) {
    const Item& item = *use.item;
    if (++items_ > kMaxItems) {
      return At(frame, item, InvalidArgument("more than {} layers and blocks", kMaxItems));
    }
    RING_ASSIGN_OR_RETURN(const bool there, Truth(frame, use.scope, item, "when", item.when, true));
    if (!there) return SkipUse(frame, use);
    RING_ASSIGN_OR_RETURN(const bool float32,
                          Truth(frame, use.scope, item, "float32", item.float32, false));
    use.float32 = frame.float32 || float32;
    if (const auto block = blocks_.find(item.kind); block != blocks_.end()) {
      return UseBlock(frame, use, block->second);
    }
    return UseLayer(frame, use);
  }

  // It is its first input then.
  StatusOr<Refs> SkipUse(const Frame& frame, const Use& use) {
    const Refs inputs = use.inputs.empty() ? Refs{"input"} : use.inputs;
    RING_RETURN_IF_ERROR(names_.Define(frame, *use.item, use.name, inputs.front()));
    return inputs;
  }

  StatusOr<Refs> UseBlock(const Frame& frame, const Use& use, const Block& block) {
    const Item& item = *use.item;
    for (const Frame* outer = &frame; outer != nullptr; outer = outer->outer) {
      if (outer->block == &block) {
        return At(frame, item, InvalidArgument("the block uses itself"));
      }
    }
    if (frame.depth >= kMaxNesting) {
      return At(frame, item, InvalidArgument("blocks nested deeper than {}", kMaxNesting));
    }
    const Refs inputs = use.inputs.empty() ? Refs{"input"} : use.inputs;
    if (inputs.size() != block.inputs.size()) {
      return At(frame, item,
                InvalidArgument("it reads {} inputs, {}; got {}", block.inputs.size(),
                                fmt::join(block.inputs, " and "), inputs.size()));
    }
    Frame inner = {.prefix = use.name + "/",
                   .block = &block,
                   .used = item.where,
                   .layers = block.layers,
                   .outer = &frame,
                   .depth = frame.depth + 1,
                   .float32 = use.float32};
    RING_RETURN_IF_ERROR(BindOptions(frame, use, block, &inner.scope));
    for (size_t i = 0; i < inputs.size(); ++i) {
      RING_RETURN_IF_ERROR(names_.Define(frame, item, inner.prefix + block.inputs[i], inputs[i]));
    }
    RING_ASSIGN_OR_RETURN(Refs made, ExpandList(inner, {inputs.front()}));
    if (!block.outputs.empty()) {
      made.clear();
      for (const std::string& output : block.outputs) {
        auto ref = names_.Find(inner, output);
        if (!ref.ok()) {
          return Within(inner, Annotate(ref.status(), block.where + ": outputs"));
        }
        made.push_back(*std::move(ref));
      }
    }
    RING_RETURN_IF_ERROR(names_.Define(frame, item, use.name, made.front()));
    return made;
  }

  Status BindOptions(const Frame& frame, const Use& use, const Block& block, Scope* scope) {
    const Item& item = *use.item;
    std::vector<std::string> names;
    for (const Declared& option : block.options) {
      names.push_back(option.name);
      if (option.by_default != nullptr) scope->options[option.name] = Borrow(*option.by_default);
    }
    RING_ASSIGN_OR_RETURN(const Options given, GivenOptions(frame, use, names));
    for (const auto& [name, value] : given) {
      if (std::ranges::find(names, name) == names.end()) {
        return At(frame, item, UnknownOption(names, name));
      }
      scope->options[name] = value;
    }
    for (const Declared& option : block.options) {
      if (scope->options.contains(option.name)) continue;
      return At(frame, item, InvalidArgument("option {} is missing", option.name));
    }
    return absl::OkStatus();
  }

  // What the item says, evaluated; `names` are the options that there are, the main one first.
  StatusOr<Options> GivenOptions(const Frame& frame, const Use& use,
                                 const std::vector<std::string>& names) {
    const Item& item = *use.item;
    Options given;
    const auto add = [&](const std::string& name, const YamlNode& value) -> Status {
      auto evaluated = use.scope.Evaluated(Borrow(value), &work_);
      if (!evaluated.ok()) return Within(frame, evaluated.status());
      given.emplace_back(name, *std::move(evaluated));
      return absl::OkStatus();
    };
    if (item.value != nullptr) {
      if (names.empty()) return At(frame, item, InvalidArgument("it has no options"));
      RING_RETURN_IF_ERROR(add(names.front(), *item.value));
    }
    for (const YamlNode::Member* option : item.options) {
      if (std::ranges::find(names, option->key) == names.end() && item.kind != kZoo) {
        return Within(frame, Annotate(UnknownOption(names, option->key),
                                      fmt::format("{}: {}", option->where, item.kind)));
      }
      RING_RETURN_IF_ERROR(add(option->key, option->value));
    }
    return given;
  }

  StatusOr<Refs> UseLayer(const Frame& frame, const Use& use) {
    const Item& item = *use.item;
    const std::optional<Kind> kind = KindOf(item.kind);
    if (layers_.size() >= kMaxLayers) {
      return At(frame, item, InvalidArgument("more than {} layers", kMaxLayers));
    }
    v1::Layer layer;
    layer.set_kind(item.kind);
    layer.set_name(use.name);
    layer.set_float32(use.float32);
    RING_RETURN_IF_ERROR(SetInputs(frame, use, *kind, &layer));
    RING_RETURN_IF_ERROR(item.kind == kZoo ? SetZoo(frame, use, *kind, &layer)
                                           : SetOptions(frame, use, *kind, &layer));
    RING_RETURN_IF_ERROR(names_.DefineLayer(frame, item, use.name));
    bytes_ += layer.ByteSizeLong();
    if (bytes_ > kMaxBytes) {
      return At(frame, item, InvalidArgument("the layers have more than {} bytes", kMaxBytes));
    }
    layer.set_where(frame.block == nullptr
                        ? item.where
                        : fmt::format("{} (used at {})", item.where, frame.used));
    layers_.push_back(std::move(layer));
    return Refs{use.name};
  }

  Status SetInputs(const Frame& frame, const Use& use, const Kind& kind, v1::Layer* layer) {
    const size_t count = std::max<size_t>(use.inputs.size(), 1);
    if (count < kind.inputs || (count > kind.inputs && !kind.more_inputs)) {
      return At(
          frame, *use.item,
          InvalidArgument("it reads {} input{}, got {}{}", kind.inputs, kind.inputs == 1 ? "" : "s",
                          count, count < kind.inputs ? ": write inputs: [NAME, NAME]" : ""));
    }
    for (const std::string& input : use.inputs) layer->add_inputs(input);
    return absl::OkStatus();
  }

  // Defaults of the file, then what the item says, by name.
  Status SetOptions(const Frame& frame, const Use& use, const Kind& kind, v1::Layer* layer) {
    std::vector<std::string> names;
    for (const FieldDescription& option : kind.options) names.push_back(option.name);
    std::ranges::copy_if(kind.roles, std::back_inserter(names),
                         [&](const std::string& role) { return kind.option(role) == nullptr; });
    RING_ASSIGN_OR_RETURN(Options given, GivenOptions(frame, use, names));
    const YamlNode* const defaults =
        defaults_ == nullptr ? nullptr : FindKey(*defaults_, kind.name.c_str());
    if (defaults != nullptr) {
      for (const YamlNode::Member& member : defaults->members) {
        const bool said = std::ranges::any_of(
            given, [&](const auto& option) { return option.first == member.key; });
        if (said) continue;
        RING_ASSIGN_OR_RETURN(NodePtr value, file_scope_.Evaluated(Borrow(member.value), &work_));
        given.emplace_back(member.key, std::move(value));
      }
    }
    RING_RETURN_IF_ERROR(TakeShared(frame, *use.item, kind, &given, layer));
    return SetAttributes(frame, *use.item, kind, given, layer);
  }

  // Takes what is a parameter of another layer out of the options: `kernel: fc1/kernel`.
  Status TakeShared(const Frame& frame, const Item& item, const Kind& kind, Options* given,
                    v1::Layer* layer) const {
    for (const std::string& role : kind.roles) {
      const auto at = std::ranges::find(*given, role, &Options::value_type::first);
      if (at == given->end()) continue;
      const YamlNode& node = *at->second;
      v1::Attribute parameter;
      parameter.set_name(role);
      if (node.kind == YamlNode::Kind::kScalar) parameter.set_s(node.text);
      if (!IsParameter(parameter)) {
        if (kind.option(role) != nullptr) continue;
        return Within(frame, WrongType(node, role, "LAYER/ROLE, a parameter of a layer before it"));
      }
      auto ref = names_.Find(frame, node.text);
      if (!ref.ok()) return At(frame, item, Annotate(ref.status(), role));
      parameter.set_s(*std::move(ref));
      *layer->add_attributes() = std::move(parameter);
      given->erase(at);
    }
    return absl::OkStatus();
  }

  static Status SetAttributes(const Frame& frame, const Item& item, const Kind& kind,
                              const Options& given, v1::Layer* layer) {
    for (const FieldDescription& option : kind.options) {
      const auto at = std::ranges::find(given, option.name, &Options::value_type::first);
      if (at == given.end() && option.required) {
        return At(frame, item,
                  InvalidArgument("option {} is missing: {}", option.name, option.help));
      }
      if (at == given.end()) continue;
      auto attribute = ReadOption(option, kind, *at->second);
      if (!attribute.ok()) return Within(frame, attribute.status());
      *layer->add_attributes() = *std::move(attribute);
    }
    return absl::OkStatus();
  }

  // Options of the zoo's layer, then those of the model.
  Status SetZoo(const Frame& frame, const Use& use, const Kind& zoo, v1::Layer* layer) {
    const Item& item = *use.item;
    RING_ASSIGN_OR_RETURN(const Options given, GivenOptions(frame, use, {kZooModel}));
    Options own, of_model;
    for (const auto& option : given) {
      (zoo.option(option.first) != nullptr ? own : of_model).push_back(option);
    }
    const auto named = std::ranges::find(own, kZooModel, &Options::value_type::first);
    if (named == own.end()) {
      return At(frame, item, InvalidArgument("option model is missing: one of `ringctl model ls`"));
    }
    const auto kind = ZooKind(named->second->text);
    if (!kind.ok()) return At(frame, item, kind.status());
    for (const auto& [name, value] : of_model) {
      if (kind->option(name) == nullptr) return At(frame, item, UnknownOption(*kind, name));
    }
    RING_RETURN_IF_ERROR(SetAttributes(frame, item, zoo, own, layer));
    RING_RETURN_IF_ERROR(SetAttributes(frame, item, *kind, of_model, layer));
    if (std::ranges::any_of(own, [](const auto& o) { return o.first == kZooPrefix; })) {
      return absl::OkStatus();
    }
    // Its tensors keep their names, but for those of the block, unless it has a name.
    v1::Attribute& prefix = *layer->add_attributes();
    prefix.set_name(kZooPrefix);
    prefix.set_s(item.name.empty() ? frame.prefix : use.name + "/");
    return absl::OkStatus();
  }

  std::map<std::string, Block> blocks_;
  const YamlNode* defaults_ = nullptr;
  Scope file_scope_;
  std::vector<v1::Layer> layers_;
  NameTable names_;
  size_t items_ = 0, bytes_ = 0;
  int64_t work_ = kMaxWork;
};

}  // namespace

StatusOr<std::vector<v1::Layer>> Expand(const YamlNode& file,
                                        const std::vector<YamlNode::Member>& given) {
  return Expander().Run(file, given);
}

}  // namespace ringmaster::model
