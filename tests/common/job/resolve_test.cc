#include "common/job/resolve.h"
#include "common/job/metrics.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "common/job/job_file.h"
#include "tests/common/job/small_job.h"

namespace ringmaster::job {
namespace {

using small::Facts;
using small::Numerics;
using small::Spec;

std::string ErrorOf(const std::vector<std::string>& overrides) {
  const Status status = Validate(Spec(overrides));
  if (status.ok()) return "valid";
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  return Message(status);
}

TEST_CASE("Validate: a small spec is valid, and each wrong field is named") {
  CHECK(ErrorOf({}) == "valid");
  CHECK(ErrorOf({"shards=8"}) ==
        "batch 4 is smaller than shards 8: each shard needs a sample; lower shards or raise batch");
  CHECK(ErrorOf({"shards=0"}) == "shards: expected 1 to 4096, got 0");
  CHECK(ErrorOf({"batch=5000", "shards=4097"}) == "shards: expected 1 to 4096, got 4097");
  CHECK(ErrorOf({"batch=0"}) == "batch: expected at least 1, got 0");
  CHECK(ErrorOf({"batch=null"}) == "batch: missing: samples of one step; for example batch: 256");
  CHECK(ErrorOf({"steps=null"}) == "expected one of epochs, steps, got none");
  CHECK(ErrorOf({"steps=0"}) == "steps: expected at least 1, got 0");
  CHECK(ErrorOf({"steps=null", "epochs=0"}) == "epochs: expected at least 1, got 0");
  CHECK(ErrorOf({"name=null"}) ==
        "name: missing: a to z and 0 to 9 first, then also . _ and -; for example name: "
        "alexnet-cifar10");
  CHECK(ErrorOf({"name=-a"}) ==
        "name: \"-a\" is not allowed: a to z and 0 to 9 first, then also . _ and -");
  CHECK(ErrorOf({"name=Upper"}).find("is not allowed") != std::string::npos);
  CHECK(ErrorOf({"name=" + std::string(101, 'a')}) == "name: expected at most 100 bytes, got 101");
  CHECK(ErrorOf({"name=" + std::string(100, 'a')}) == "valid");
  CHECK(ErrorOf({"precision_bits=7"}) == "precision_bits: expected 8 to 24, got 7");
  CHECK(ErrorOf({"precision_bits=25"}) == "precision_bits: expected 8 to 24, got 25");
  CHECK(ErrorOf({"checkpoint.keep=0"}) == "checkpoint.keep: expected at least 1, got 0");
  CHECK(ErrorOf({"checkpoint.every_seconds=-0.5"}) ==
        "checkpoint.every_seconds: expected 0 to 86400, got -0.5");
  CHECK(ErrorOf({"checkpoint.every_seconds=86401"}) ==
        "checkpoint.every_seconds: expected 0 to 86400, got 86401");
  CHECK(ErrorOf({"checkpoint.every_seconds=86400"}) == "valid");
  CHECK(ErrorOf({"checkpoint.every_seconds=0.5"}) == "valid");
  CHECK(ErrorOf({"augment=[{random_crop: {padding: 65}}]"}) ==
        "augment.0.random_crop.padding: expected 1 to 64, got 65");
  CHECK(ErrorOf({"augment=[{random_flip: {}}, {}]"}) ==
        "augment.1: expected one of random_crop, random_flip, random_brightness, random_contrast, "
        "per_image_standardization, normalize, resize, center_crop, random_resized_crop, preset, "
        "color_jitter, random_rotation, random_erasing, mixup, cutmix, got none");
  for (const auto& [entry, words] : std::vector<std::pair<std::string, std::string>>{
           {"resize: {}", "resize: expected size or short, there is neither"},
           {"resize: {size: 8, short: 8}", "resize: expected size or short, not both"},
           {"resize: {size: []}",
            "resize: size: 0 numbers; expected [height, width], or one number for both"},
           {"center_crop: {}", "center_crop: expected size or fraction, there is neither"},
           {"random_crop: {size: 8, padding: 2}",
            "random_crop: expected padding or size, not both"},
           {"random_resized_crop: {size: 8, scale: [1, 0.5]}",
            "random_resized_crop: scale: expected [least, most], got [1, 0.5]"},
           {"random_resized_crop: {size: []}",
            "random_resized_crop: size: 0 numbers; expected [height, width], or one number for "
            "both"},
           {"normalize: {mean: [0.5]}",
            "normalize: 1 means and 3 deviations: expected one of each for every channel"},
           {"normalize: {kind: tf, std: [0.5]}",
            "normalize: mean and std belong to kind torch: leave them out"},
           {"preset: cifa",
            "preset: \"cifa\" is not known, did you mean cifar?; known: "
            "imagenet_train, imagenet_eval, imagenet_eval_tpu, cifar, cifar_tutorial"},
           {"color_jitter: {contrast: 0}",
            "color_jitter: nothing would change: say how much, as in {brightness: 0.4, contrast: "
            "0.4, saturation: 0.4}"},
           {"color_jitter: {hue: 0.6}", "color_jitter.hue: expected 0 to 0.5, got 0.6"},
           {"random_rotation: {}",
            "random_rotation.degrees: missing: [least, most] to the left, or one number for both "
            "ways; for example degrees: 15"},
           {"random_rotation: {degrees: [10, -10]}",
            "random_rotation: degrees: expected [least, most], got [10, -10]"},
           {"random_rotation: {degrees: 200}",
            "random_rotation.degrees: expected -180 to 180, got 200"},
           {"random_erasing: {area: [0.5, 0.1]}",
            "random_erasing: area: expected [least, most], got [0.5, 0.1]"},
           {"random_erasing: {ratio: [1]}",
            "random_erasing: ratio: expected [least, most], got [1]"},
           {"mixup: {alpha: 0.01}", "mixup.alpha: expected 0.05 to 100, got 0.01"},
           {"cutmix: {probability: 0}",
            "cutmix.probability: expected above 0, at most 1, got 0"}}) {
    CHECK(ErrorOf({"augment=[{" + entry + "}]", "loss=softmax_cross_entropy"}) ==
          "augment.0." + words);
  }
  CHECK(ErrorOf({"augment=[{normalize: torch}, {color_jitter: {hue: 0.1}}]"}) ==
        "augment.1.color_jitter: it is for values of 0 to 255: put it in front of entry 0");
  CHECK(ErrorOf({"augment=[{mixup: {}}, {cutmix: {}}, {mixup: {}}]"}) ==
        "augment.2.mixup: entry 0 is one, too: a list has one of it");
  CHECK(ErrorOf({"augment=[{cutmix: {}}, {random_flip: {}}]"}) ==
        "augment.1.random_flip: it stands behind entry 0, which is done last: put it in front");
  CHECK(ErrorOf({"augment=[{mixup: {}}, {cutmix: {}}]"}) == "valid");
  CHECK(ErrorOf({"evaluate={augment: [{mixup: {}}]}"}) ==
        "evaluate.augment.0.mixup: what is evaluated is never random: leave it out");
  CHECK(ErrorOf({"evaluate={augment: [{preset: imagenet_train}]}"}) ==
        "evaluate.augment.0.random_resized_crop: what is evaluated is never random: leave it out");
  CHECK(ErrorOf({"model=null"}) ==
        "model: missing: a model of the zoo with its options, a model file, or layers");
  CHECK(ErrorOf({"model.name=resnet"}) != "valid");
}

TEST_CASE("Validate: checkpoint.every_seconds is a number, whatever a client sends") {
  v1::JobSpec spec = Spec({});
  for (const double wrong : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    spec.mutable_checkpoint()->set_every_seconds(wrong);
    CHECK_FALSE(Validate(spec).ok());
  }
}

TEST_CASE("Validate: optimizers") {
  CHECK(ErrorOf({"optimizer=null"}) ==
        "optimizer: expected one of sgd, adam, rmsprop, lars, lamb, torch_sgd, torch_adam, "
        "torch_rmsprop, got none");
  CHECK(ErrorOf({"optimizer.adam.learning_rate=0"}) ==
        "optimizer.adam.learning_rate: expected above 0, got 0");
  CHECK(ErrorOf({"optimizer.adam.beta_1=1"}) ==
        "optimizer.adam.beta_1: expected at least 0, under 1, got 1");
  CHECK(ErrorOf({"optimizer.adam.beta_2=-0.1"}) ==
        "optimizer.adam.beta_2: expected at least 0, under 1, got -0.1");
  CHECK(ErrorOf({"optimizer.adam.epsilon=0"}) ==
        "optimizer.adam.epsilon: expected at least 1e-30, got 0");
  CHECK(ErrorOf({"optimizer={sgd: {momentum: 1}}"}) ==
        "optimizer.sgd.momentum: expected at least 0, under 1, got 1");
  CHECK(ErrorOf({"optimizer={sgd: {learning_rate: -1}}"}) ==
        "optimizer.sgd.learning_rate: expected above 0, got -1");
  CHECK(ErrorOf({"optimizer={sgd: {momentum: 0.9, nesterov: true}}"}) == "valid");
}

TEST_CASE("Validate: a data path stays under --data-root") {
  CHECK(ErrorOf({"data.format=png"}) ==
        "data.format: \"png\" is not known; known: cifar10, cifar100, mnist, npy, npz, "
        "image_folder, tfrecord, webdataset, tokens, csv");
  CHECK(ErrorOf({"data.format=tokens", "data.window=8", "data.token_type=uint32"}) == "valid");
  CHECK(
      ErrorOf({"data.format=csv", "data.csv={delimiter: '.'}"}).find("data.csv.delimiter: \".\"") ==
      0);
  CHECK(ErrorOf({"data.path=/etc"}) ==
        "data.path: /etc is absolute; it must be relative to --data-root");
  for (const std::string path : {"..", "../x", "a/../b", "a/.."}) {
    CHECK(ErrorOf({"data.path=" + path}) == "data.path: " + path + " leaves --data-root by `..`");
  }
  CHECK(ErrorOf({"data.path=\"a\\x00b\""}) == "data.path: there is a zero byte in it");
  CHECK(ErrorOf({"data.path=null"}) ==
        "data.path: missing: folder, relative to the worker's --data-root, or an address: "
        "https://HOST/FOLDER/, s3://BUCKET/PREFIX/; for example path: cifar10");
  CHECK(ErrorOf({"data.path=a..b/..c"}) == "valid");
}

TEST_CASE("Validate: a data path may be an address, which says no secret") {
  for (const std::string path :
       {"https://h/d/", "http://h:8080/train.npz", "s3://bucket/d/", "s3://bucket"}) {
    INFO(path);
    CHECK(ErrorOf({"data.path=" + path}) == "valid");
  }
  CHECK(ErrorOf({"data.path=ftp://h/d/"}) ==
        "data.path: addresses of data begin with https://, http:// or s3://, not \"ftp://\"");
  CHECK(ErrorOf({"data.path=https://me:pw@h/d/"})
            .find("data.path: https://...@h: there are "
                  "credentials in the address") == 0);
  CHECK(ErrorOf({"data.path=https://h/d/../e/"}).find("leaves its folder by `..`") !=
        std::string::npos);
}

TEST_CASE("Validate: worker ranges") {
  CHECK(ErrorOf({"workers={min: 0}"}) == "workers.min: expected at least 1, got 0");
  CHECK(ErrorOf({"workers={min: 3, max: 2}"}) == "workers.max 2 is smaller than workers.min 3");
  CHECK(ErrorOf({"workers={min: 5}"}) ==
        "workers.min 5 is larger than shards 4: each worker needs a shard; lower workers.min or "
        "raise shards");
  CHECK(ErrorOf({"workers={min: 4, max: 100}"}) == "valid");
}

TEST_CASE("Validate: classes of workers") {
  CHECK(ErrorOf({"workers={mix: fixed, classes: {a: 3, b: 1}}"}) == "valid");
  CHECK(ErrorOf({"workers={mix: fallback}"}) == "valid");
  CHECK(ErrorOf({"workers={classes: {a: 3, b: 1}}"}) ==
        "workers.classes: with workers.mix none one class computes all shards; add mix: fixed or "
        "mix: fallback, or leave the classes out");
  CHECK(ErrorOf({"workers={mix: fixed, classes: {a: 3, b: 2}}"}) ==
        "workers.classes: 5 shards in all, but the job has 4");
  CHECK(ErrorOf({"workers={mix: fixed, max: 1, classes: {a: 3, b: 1}}"}) ==
        "workers.max 1 is smaller than the number of workers.classes, 2");
  CHECK(ErrorOf({"workers={mix: fixed, classes: {a: 4, b: 0}}"}) ==
        "workers.classes.1.shards: expected 1 to 4096, got 0");
  CHECK(PrintJobFile(Spec({"workers={mix: fixed, classes: {b: 3, a: 1}}"}))
            .find("workers: {mix: fixed, classes: {b: 3, a: 1}}") != std::string::npos);
}

TEST_CASE("Validate: values that no job file can hold") {
  v1::JobSpec spec = Spec();
  spec.mutable_precision()->set_policy(static_cast<v1::Policy>(99));
  CHECK(Message(Validate(spec)) ==
        "precision.policy: expected one of float32, mixed_bfloat16, mixed_float16, got 99");
  spec = Spec();
  spec.set_reduction(static_cast<v1::Reduction>(99));
  CHECK(Message(Validate(spec)) == "reduction: expected one of exact, float32, got 99");
  spec = Spec();
  spec.mutable_optimizer()->mutable_adam()->set_beta_1(std::numeric_limits<double>::quiet_NaN());
  CHECK(Message(Validate(spec)) == "optimizer.adam.beta_1: expected at least 0, under 1, got nan");
}

TEST_CASE("Resolve: augmentation has its defaults, and evaluation nothing random") {
  const auto job = Resolve(Spec({"augment=[{color_jitter: {hue: 0.1}}, {random_rotation: {degrees: "
                                 "15}}, {random_erasing: {}}, {mixup: {}}, {cutmix: {}}]"}),
                           Facts(), Numerics());
  INFO(job.status());
  REQUIRE(job.ok());
  const auto& list = job->result().augment();
  CHECK(list[0].color_jitter().ShortDebugString() ==
        "brightness: 0 contrast: 0 saturation: 0 hue: 0.1");
  CHECK(list[1].random_rotation().ShortDebugString() ==
        "degrees { values: -15 values: 15 } fill: 0");
  CHECK(list[2].random_erasing().ShortDebugString() ==
        "probability: 0.5 area { values: 0.02 values: 0.33 } ratio { values: 0.3 values: 3.3 } "
        "value { values: 0 }");
  CHECK(list[3].mixup().ShortDebugString() == "alpha: 0.2 probability: 1");
  CHECK(list[4].cutmix().ShortDebugString() == "alpha: 1 probability: 1");
  CHECK(job->result().evaluation_augment().empty());
}

TEST_CASE("Resolve: the tutorial's distortions, of which evaluation has the middle") {
  const auto job = Resolve(Spec({"augment=[{preset: cifar_tutorial}]", "data.resize=null"}),
                           Facts(), Numerics());
  INFO(job.status());
  REQUIRE(job.ok());
  const auto& list = job->result().augment();
  REQUIRE(list.size() == 5);
  CHECK(list[0].random_crop().size().values(0) == 24);
  CHECK(list[1].has_random_flip());
  CHECK(list[2].random_brightness().max_delta() == 63);
  CHECK(list[3].random_contrast().ShortDebugString() == "lower: 0.2 upper: 1.8");
  CHECK(list[4].has_per_image_standardization());
  const auto& evaluation = job->result().evaluation_augment();
  REQUIRE(evaluation.size() == 2);
  CHECK(evaluation[0].center_crop().size().values(0) == 24);
  CHECK(evaluation[1].has_per_image_standardization());
  CHECK(job->result().graph().columns(0).shape(0) == 24);
}

TEST_CASE("Resolve: what cannot be mixed or turned is refused by name") {
  const auto refused = [](const std::vector<std::string>& overrides) {
    return Message(Resolve(Spec(overrides), Facts(), Numerics()).status());
  };
  v1::DatasetFacts numbers = Facts();
  v1::StoredColumn& target = *numbers.mutable_columns(1);
  target.set_type(v1::ELEMENT_TYPE_FLOAT32);
  target.set_limit(0);
  target.add_shape(1);
  const auto spec = Spec({"augment=[{random_flip: {}}, {mixup: {}}]", "loss=mean_squared_error",
                          "data={path: numbers}", "model=null",
                          "model={layers: [{flatten: {}}, {dense: {units: 1}}]}"});
  CHECK(Message(Resolve(spec, numbers, Numerics()).status()) ==
        "augment.1.mixup: loss loss is no softmax_cross_entropy, whose labels alone can be mixed: "
        "leave it out, or choose that loss");
  CHECK(refused({"data.exif=apply"}) ==
        "data.exif: images of format cifar10 are stored without EXIF: leave it out");
  CHECK(refused({"data.exif=ignore"}).empty());
  CHECK(refused({"augment=[{random_erasing: {value: [1, 2]}}]"}) ==
        "augment: 0.random_erasing: it is for 2 channels, the images have 3");
}

TEST_CASE("Resolve: every default is filled in") {
  const auto job = Resolve(Spec({"augment=[{random_crop: {}}]"}), Facts(), Numerics());
  INFO(job.status());
  REQUIRE(job.ok());
  const v1::ResultSpec& result = job->result();
  CHECK(result.batch() == 4);
  CHECK(result.shards() == 4);
  CHECK(result.steps_per_epoch() == 3);
  CHECK(result.total_steps() == 10);
  CHECK(result.seed() == 0);
  CHECK(result.policy() == v1::POLICY_FLOAT32);
  CHECK(result.reduction() == v1::REDUCTION_EXACT);
  CHECK(result.precision_bits() == 21);
  CHECK(result.optimizer().adam().learning_rate() == 0.001);
  CHECK(result.optimizer().adam().beta_1() == 0.9);
  CHECK(result.optimizer().adam().beta_2() == 0.999);
  CHECK(result.optimizer().adam().epsilon() == 1e-7);
  CHECK(result.augment(0).random_crop().padding() == 4);
  CHECK(result.graph().parameters_size() == 6);
  CHECK(job->model_sha256() == Hex(ModelDigest(result.graph())));
  CHECK(job->workers().min() == 1);
  CHECK(job->workers().max() == 4);
  CHECK(job->checkpoint().has_every_steps());
  CHECK(job->checkpoint().keep() == 3);
  CHECK(job->checkpoint().has_every_seconds());
  CHECK(job->checkpoint().every_seconds() == 0);
  CHECK(job->data_path() == "cifar10");
}

TEST_CASE("Validate: loss scaling belongs to mixed_float16") {
  CHECK(ErrorOf({"precision={policy: mixed_float16}"}) == "valid");
  CHECK(ErrorOf({"precision={policy: mixed_float16, initial_loss_scale: 1, growth_steps: 1}"}) ==
        "valid");
  CHECK(ErrorOf({"precision={policy: mixed_float16, initial_loss_scale: 1000}"}) ==
        "precision.initial_loss_scale: expected a power of two, 1 to 16777216, got 1000");
  CHECK(ErrorOf({"precision={policy: mixed_float16, growth_steps: 0}"}) ==
        "precision.growth_steps: expected at least 1, got 0");
  CHECK(ErrorOf({"precision={policy: mixed_bfloat16, growth_steps: 5}"}) ==
        "precision.growth_steps: only policy mixed_float16 scales the loss; leave it out");
}

TEST_CASE("Validate: what is taken of a dataset") {
  CHECK(ErrorOf({"data.format=cifar1"}) ==
        "data.format: \"cifar1\" is not known; known: cifar10, cifar100, mnist, npy, npz, "
        "image_folder, tfrecord, webdataset, tokens, csv");
  CHECK(ErrorOf({"data.take=0"}) == "data.take: expected at least 1, got 0");
  CHECK(ErrorOf({"data.resize=224"}) == "valid");
  CHECK(ErrorOf({"data.resize=[32, 48]"}) == "valid");
  CHECK(ErrorOf({"data.resize=[1, 2, 3]"}) ==
        "data.resize: 3 numbers; expected [height, width], or one number for both");
  CHECK(ErrorOf({"data.resize=[0, 2]"}) == "data.resize: expected 1 to 1024, got 0");
  CHECK(ErrorOf({"data.repeat_channels=2"}) == "data.repeat_channels: expected 3, got 2");
}

TEST_CASE("Validate: a validation set and what is best by it") {
  CHECK(ErrorOf({"validation={split: 0.1}"}) == "valid");
  CHECK(ErrorOf({"validation={split: 1.0}"}) ==
        "validation.split: expected above 0, under 1, got 1");
  CHECK(ErrorOf({"validation={}"}) == "validation: expected one of split, fold, folds, got none");
  CHECK(ErrorOf({"validation={fold: 5/5}"}) == "valid");
  for (const char* const fold : {"0/5", "6/5", "1/1", "1", "a/b", "1/1001", "01/5", "1/5 "}) {
    CHECK_THAT(ErrorOf({fmt::format("validation={{fold: \"{}\"}}", fold)}),
               Catch::StartsWith(fmt::format("validation.fold: \"{}\" is not i/n", fold)));
  }
  CHECK(ErrorOf({"checkpoint={best: test/loss}"}) == "valid");
  CHECK(ErrorOf({"stop={metric: test/loss, patience: 2}"}) == "valid");
  CHECK(ErrorOf({"checkpoint={best: test/accuracy}", "stop={patience: 2}"}) == "valid");
  CHECK(ErrorOf({"stop={patience: 2}"}) ==
        "stop.metric: missing: SPLIT/METRIC that the job watches; for example metric: "
        "validation/loss");
  CHECK(
      ErrorOf({"stop={metric: test/loss}"}) ==
      "stop.patience: missing: so many evaluations in a row that are not better than the best one "
      "before them; for example patience: 3");
  CHECK(ErrorOf({"stop={metric: validation/loss, patience: 1}"}) ==
        "stop.metric: validation/loss needs a validation set: add validation: {split: 0.1}, or "
        "choose test/loss");
  CHECK(ErrorOf({"checkpoint={best: validation/loss}"}) ==
        "checkpoint.best: validation/loss needs a validation set: add validation: {split: 0.1}, or "
        "choose test/loss");
  for (const char* text : {"accuracy", "test_loss", "train/loss", "test/", "/loss"}) {
    CHECK(ErrorOf({fmt::format("checkpoint={{best: {}}}", text)}) ==
          fmt::format("checkpoint.best: \"{}\" is not SPLIT/METRIC with split test or validation, "
                      "for example test/accuracy",
                      text));
  }
}

TEST_CASE("Validate: distortions") {
  CHECK(ErrorOf({"augment=[{random_brightness: {}}, {random_contrast: {}}]"}) == "valid");
  CHECK(ErrorOf({"augment=[{random_brightness: {max_delta: 0}}]"}) ==
        "augment.0.random_brightness.max_delta: expected above 0, at most 255, got 0");
  CHECK(ErrorOf({"augment=[{random_contrast: {lower: 2}}]"}) ==
        "augment.0.random_contrast: lower 2 is not below upper 1.8");
}

TEST_CASE("Resolve: mixed_float16 has a loss scale") {
  const auto job = Resolve(Spec({"precision={policy: mixed_float16}"}), Facts(), Numerics());
  REQUIRE(job.ok());
  CHECK(job->result().initial_loss_scale() == 32768);
  CHECK(job->result().growth_steps() == 2000);
}

TEST_CASE("Resolve: checkpoint.best is a metric of the model, which knows which way it points") {
  const auto best = [](const std::string& text) {
    return Resolve(Spec({"checkpoint.best=" + text}), Facts(), Numerics());
  };
  const auto accuracy = best("test/accuracy");
  REQUIRE(accuracy.ok());
  CHECK(BestWatch(accuracy->result()).split() == v1::SAMPLE_SPLIT_TEST);
  CHECK_FALSE(BestWatch(accuracy->result()).lower_is_better());
  CHECK(BestWatch(best("test/loss")->result()).lower_is_better());
  CHECK(Resolve(Spec(), Facts(), Numerics())->result().watches().empty());
  CHECK(Message(best("test/recall").status()) ==
        "checkpoint.best: the model has no metric \"recall\"; it has loss, accuracy");
}

TEST_CASE("Resolve: what stops a job is its best, too, unless that is named") {
  const auto both =
      Resolve(Spec({"stop={metric: test/loss, patience: 2, min_delta: 0.5}"}), Facts(), Numerics());
  REQUIRE(both.ok());
  REQUIRE(both->result().watches_size() == 1);
  CHECK(BestWatch(both->result()).name() == "loss");
  CHECK(StopWatch(both->result()).patience() == 2);
  CHECK(StopWatch(both->result()).min_delta() == 0.5);
  const auto each = Resolve(Spec({"stop={metric: test/loss, patience: 2}",
                                  "checkpoint={best: test/accuracy}", "evaluate={every_steps: 2}"}),
                            Facts(), Numerics());
  REQUIRE(each.ok());
  REQUIRE(each->result().watches_size() == 2);
  CHECK(StopWatch(each->result()).name() == "loss");
  CHECK_FALSE(StopWatch(each->result()).best());
  CHECK(BestWatch(each->result()).name() == "accuracy");
  CHECK(BestWatch(each->result()).patience() == 0);
  CHECK(each->result().evaluation_steps() == 2);
}

TEST_CASE("Resolve: of several losses what is minimized may be watched, under its name") {
  const std::vector<std::string> two = {
      "loss=[{softmax_cross_entropy: {name: a}}, {softmax_cross_entropy: {name: b, weight: 0.5}}]",
      "stop={metric: test/loss, patience: 2}"};
  const auto job = Resolve(Spec(two), Facts(), Numerics());
  INFO(job.status());
  REQUIRE(job.ok());
  CHECK(StopWatch(job->result()).name() == "loss");
  CHECK(StopWatch(job->result()).lower_is_better());
  const auto of = [&](const std::string& metric) {
    return Resolve(Spec({two[0], "stop={metric: " + metric + ", patience: 2}"}), Facts(),
                   Numerics());
  };
  CHECK(StopWatch(of("test/b")->result()).lower_is_better());
  CHECK_FALSE(StopWatch(of("test/accuracy")->result()).lower_is_better());
  CHECK(Message(of("test/recall").status()) ==
        "stop.metric: the model has no metric \"recall\"; it has loss, a, b, accuracy");
}

TEST_CASE("Resolve: epochs become steps; data that do not fit are refused") {
  const auto job = Resolve(Spec({"steps=null", "epochs=5"}), Facts(), Numerics());
  REQUIRE(job.ok());
  CHECK(job->result().total_steps() == 15);
  v1::DatasetFacts facts = Facts();
  facts.set_test_samples(0);
  CHECK(Resolve(Spec(), facts, Numerics())->result().data_use().test_samples() == 0);
  CHECK(Message(Resolve(Spec({"checkpoint={best: test/loss}"}), facts, Numerics()).status()) ==
        "checkpoint.best: the data have no test samples; choose validation/loss, with a "
        "validation set");
  facts.set_train_samples(0);
  CHECK(Message(Resolve(Spec(), facts, Numerics()).status()) ==
        "the dataset has no training samples");
  facts.set_format("other");
  CHECK(Message(Resolve(Spec(), facts, Numerics()).status()) ==
        "the dataset is of format other, the job wants cifar10");
}

TEST_CASE("Result digest: canonical JSON has sorted keys, every field and nothing else") {
  const auto job = Resolve(Spec({"seed=7", "model.hidden=[]"}), Facts(), Numerics());
  REQUIRE(job.ok());
  CHECK(
      CanonicalJson(job->result()) ==
      R"({"augment":[],"batch":4,"class_maps":[{"before_evaluation":true,"classes":[)"
      R"({"class":"cpu-avx2-8a2e175a","numerics":{"backend":"cpu","cache_bytes":[32768],)"
      R"("compute_id":"b1","device_model":"Some \"CPU\"","instruction_set":"avx2",)"
      R"("libraries":{"glibc":"2.36","onednn":"2.7"},"threads_per_core":1},"shards":4}],)"
      R"("step":0}],"continues":null,"data":{"columns":[{"least":0,"limit":0,"name":"image",)"
      R"("shape":[32,32,3],"type":"uint8","use":"input"},{"least":0,"limit":10,"name":"label",)"
      R"("shape":[],"type":"int32","use":"target"}],"files":[{"bytes":30730,)"
      R"("name":"data_batch_1.bin","samples":10,"sha256":")" +
          std::string(64, 'a') +
          R"("}],"format":"cifar10","index":null,"test_samples":3,"train_samples":10},)"
          R"("data_use":{"test_from":"test","test_samples":3,"train_samples":10,)"
          R"("validation_begin":0,"validation_samples":0},"evaluation_augment":[],)"
          R"("evaluation_steps":3,)"
          R"("graph":)" +
          CanonicalJson(job->result().graph()) +
          R"(,"growth_steps":0,"init":null,"initial_loss_scale":1,"kind":"train",)"
          R"("optimizer":{"adam":{"beta_1":0.9,"beta_2":0.999,"epsilon":1e-07,)"
          R"("learning_rate":0.001},"clip":null,"ema":null,"groups":[],"schedule":null,)"
          R"("weight_decay":null},"policy":"float32","precision_bits":21,)"
          R"("reduction":"exact","seed":7,"shards":4,"steps_per_epoch":3,"total_steps":10,)"
          R"("updates":[{"adapts":true,"adds":false,"group":0,"learning_rate":1,"weight_decay":0},)"
          R"({"adapts":false,"adds":false,"group":0,"learning_rate":1,"weight_decay":0}],"watches":[]})");
}

TEST_CASE("Model digest: the graph as canonical JSON, whatever the model was called") {
  const auto job = Resolve(Spec({"model.hidden=[]"}), Facts(), Numerics());
  REQUIRE(job.ok());
  CHECK(
      CanonicalJson(job->result().graph()) ==
      R"({"columns":[{"least":0,"limit":0,"name":"image","shape":[32,32,3],"type":"float32"},)"
      R"({"least":0,"limit":10,"name":"label","shape":[],"type":"int32"}],)"
      R"("nodes":[{"attributes":[{"ints":{"values":[3072]},"name":"shape"}],"float32":false,"inputs":["image"],)"
      R"("name":"flatten","op":"reshape","version":1},)"
      R"({"attributes":[],"float32":false,"inputs":["flatten","fc/kernel","fc/bias"],"name":"fc","op":"dense",)"
      R"("version":1},{"attributes":[{"f":0,"name":"label_smoothing"}],"float32":false,"inputs":["fc","label"],)"
      R"("name":"loss","op":"softmax_cross_entropy","version":1},)"
      R"({"attributes":[{"i":1,"name":"k"}],"float32":false,"inputs":["fc","label"],"name":"accuracy",)"
      R"("op":"top_k","version":1}],)"
      R"("outputs":[{"loss":{"weight":1},"name":"loss","value":"loss"},)"
      R"({"measure":{"lower_is_better":false,"view":"mean"},"name":"accuracy","value":"accuracy"}],)"
      R"("parameters":[{"initializer":{"distribution":"uniform","scale":0.044122418339544646},)"
      R"("name":"fc/kernel","shape":[3072,10],"trainable":true},)"
      R"({"initializer":{"distribution":"constant","scale":0},"name":"fc/bias","shape":[10],"trainable":true}],)"
      R"("statistics":[],"version":1})");
}

TEST_CASE("Result digest: changes with what determines the result and with nothing else") {
  const auto digest = [](const std::vector<std::string>& overrides) {
    const auto job = Resolve(Spec(overrides), Facts(), Numerics());
    REQUIRE(job.ok());
    return Hex(ResultDigest(job->result()));
  };
  const std::string base = digest({});
  CHECK(base ==
        digest({"name=other", "workers={min: 2}", "checkpoint={keep: 9, every_seconds: 60}",
                "memory={rematerialize: true}", "data.path=elsewhere", "seed=0", "shards=4"}));
  CHECK(base != digest({"seed=1"}));
  for (const char* around :
       {"ema={decay: 0.9}", "clip={value: 1}", "schedule={cosine: {}}", "weight_decay={rate: 0.1}",
        "groups=[{match: \"*/bias\", learning_rate: 2}]"}) {
    CHECK(base != digest({"optimizer." + std::string(around)}));
  }
  CHECK(base != digest({"shards=2"}));
  CHECK(base != digest({"steps=11"}));
  CHECK(base != digest({"optimizer.adam.epsilon=1e-8"}));
}

}  // namespace
}  // namespace ringmaster::job
