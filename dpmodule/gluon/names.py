"""The public names of MXNet 1.9.1's Gluon, by package and module."""

from __future__ import annotations

MODULES: dict[str, dict[str, str]] = {
    "": {
        "block": "Block HybridBlock SymbolBlock",
        "parameter": "Constant DeferredInitializationError Parameter ParameterDict",
        "trainer": "Trainer",
    },
    "nn": {
        "": "Block HybridBlock SymbolBlock",
        "activations": "Activation ELU GELU LeakyReLU PReLU SELU Swish",
        "basic_layers": """BatchNorm BatchNormReLU Dense Dropout Embedding Flatten GroupNorm HybridLambda
            HybridSequential InstanceNorm Lambda LayerNorm Sequential""",
        "conv_layers": """AvgPool1D AvgPool2D AvgPool3D Conv1D Conv1DTranspose Conv2D Conv2DTranspose Conv3D
            Conv3DTranspose GlobalAvgPool1D GlobalAvgPool2D GlobalAvgPool3D GlobalMaxPool1D GlobalMaxPool2D
            GlobalMaxPool3D MaxPool1D MaxPool2D MaxPool3D ReflectionPad2D""",
    },
    "rnn": {
        "rnn_cell": """BidirectionalCell DropoutCell GRUCell HybridRecurrentCell HybridSequentialRNNCell LSTMCell
            ModifierCell RNNCell RecurrentCell ResidualCell SequentialRNNCell ZoneoutCell""",
        "rnn_layer": "GRU LSTM RNN",
    },
    "data": {
        "dataloader": "DataLoader",
        "dataset": "ArrayDataset Dataset RecordFileDataset SimpleDataset",
        "sampler": "BatchSampler FilterSampler RandomSampler Sampler SequentialSampler",
    },
    "data.vision": {
        "datasets": "CIFAR10 CIFAR100 FashionMNIST ImageFolderDataset ImageRecordDataset MNIST",
    },
    "data.vision.transforms": {
        "": """Cast CenterCrop Compose CropResize Normalize RandomApply RandomBrightness RandomColorJitter
            RandomContrast RandomFlipLeftRight RandomFlipTopBottom RandomHue RandomLighting RandomResizedCrop
            RandomRotation RandomSaturation Resize Rotate ToTensor""",
    },
    "loss": {
        "": """CTCLoss CosineEmbeddingLoss HingeLoss HuberLoss KLDivLoss L1Loss L2Loss LogisticLoss Loss
            PoissonNLLLoss SDMLLoss SigmoidBCELoss SigmoidBinaryCrossEntropyLoss SquaredHingeLoss TripletLoss""",
    },
    "utils": {"": "download replace_file"},
    "model_zoo": {"model_store": "get_model_file purge"},
    "model_zoo.vision": {
        "": "get_model",
        "alexnet": "AlexNet alexnet",
        "densenet": "DenseNet densenet121 densenet161 densenet169 densenet201",
        "inception": "Inception3 inception_v3",
        "mobilenet": """MobileNet MobileNetV2 get_mobilenet get_mobilenet_v2 mobilenet0_25 mobilenet0_5 mobilenet0_75
            mobilenet1_0 mobilenet_v2_0_25 mobilenet_v2_0_5 mobilenet_v2_0_75 mobilenet_v2_1_0""",
        "resnet": """BasicBlockV1 BasicBlockV2 BottleneckV1 BottleneckV2 ResNetV1 ResNetV2 get_resnet resnet101_v1
            resnet101_v2 resnet152_v1 resnet152_v2 resnet18_v1 resnet18_v2 resnet34_v1 resnet34_v2 resnet50_v1
            resnet50_v2""",
        "squeezenet": "SqueezeNet squeezenet1_0 squeezenet1_1",
        "vgg": "VGG get_vgg vgg11 vgg11_bn vgg13 vgg13_bn vgg16 vgg16_bn vgg19 vgg19_bn",
    },
    "contrib.cnn": {"conv_layers": "DeformableConvolution ModulatedDeformableConvolution"},
    "contrib.data": {"sampler": "IntervalSampler", "text": "WikiText103 WikiText2"},
    "contrib.estimator": {
        "batch_processor": "BatchProcessor",
        "estimator": "Estimator",
        "event_handler": """BatchBegin BatchEnd CheckpointHandler EarlyStoppingHandler EpochBegin EpochEnd
            GradientUpdateHandler LoggingHandler MetricHandler StoppingHandler TrainBegin TrainEnd
            ValidationHandler""",
    },
    "contrib.nn": {
        "basic_layers": """Concurrent HybridConcurrent Identity PixelShuffle1D PixelShuffle2D PixelShuffle3D
            SparseEmbedding SyncBatchNorm""",
    },
    "contrib.rnn": {
        "": """Conv1DGRUCell Conv1DLSTMCell Conv1DRNNCell Conv2DGRUCell Conv2DLSTMCell Conv2DRNNCell Conv3DGRUCell
            Conv3DLSTMCell Conv3DRNNCell VariationalDropoutCell""",
    },
}
"""Those that a module defines; "" stands for the package itself. What is here is left out."""
