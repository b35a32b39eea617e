"""``nanomem bench segmentation``: how well segmenters find where the topics of dialogues change."""
