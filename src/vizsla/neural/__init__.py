"""Neural networks: heads with their torch and their ONNX side, running them, opening third-party checkpoints.

Nothing here needs torch to be imported; building a torch network does.
"""
